try{let t=localStorage.getItem("cudal1.theme");(t==="light"||t==="dark")&&(document.documentElement.dataset.theme=t)}catch{}
