// Modules of the bundled problems, taken into the page as they are.

import assocOrder from "../../../problems/bundled/train/assoc_order_1.py";
import diagMatmul from "../../../problems/bundled/train/diag_matmul_1.py";
import doubleNorm from "../../../problems/bundled/train/double_norm_1.py";
import repeatSoftmax from "../../../problems/bundled/train/repeat_softmax_1.py";
import rowLoop from "../../../problems/bundled/train/row_loop_1.py";

export const EXAMPLES: { name: string; source: string }[] = [
  { name: "A diagonal matrix, multiplied as if it were full", source: diagMatmul },
  { name: "Softmax, one row at a time", source: rowLoop },
  { name: "The same softmax, five times", source: repeatSoftmax },
  { name: "Matrix products in the wrong order", source: assocOrder },
  { name: "Layer normalisation in double precision", source: doubleNorm },
];
