"""Which words of inline C++ and CUDA are names that it declares, and where."""

from __future__ import annotations

import pytest

from cudal1_ray.source.native_names import read_native


def declared(source: str) -> str:
    """Return the tokens of a source; a name followed by the number of its block, F for the file's."""
    tokens, names = read_native(source)
    numbers = {
        block: str(number) for number, block in enumerate(sorted({block for block in names.values() if block > 0}))
    }
    return " ".join(
        token + (f":{numbers.get(names[at], 'F')}" if at in names else "") for at, token in enumerate(tokens)
    )


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("float f(float x) { return x; }", "float f:F ( float x:0 ) { return x:0 ; }"),
        ("int a = 1, *b = p, c;", "int a:F = 1 , * b:F = p , c:F ;"),
        ("{ int a = f(b, c), d; }", "{ int a:0 = f ( b , c ) , d:1 ; }"),
        ("const at::Tensor& x = y;", "const at :: Tensor & x:F = y ;"),
        ("{ size_t n; { float n; n; } n; }", "{ size_t n:0 ; { float n:1 ; n:1 ; } n:0 ; }"),
        ("{ for (int i = 0; i < 2; i++) f(i); for (int i = 1;;) { i; } }",
         "{ for ( int i:0 = 0 ; i:0 < 2 ; i:0 ++ ) f ( i:0 ) ; for ( int i:1 = 1 ; ; ) { i:1 ; } }"),
        ("namespace a { int b; } extern \"C\" { int c; } int d = b + c;",
         'namespace a { int b:F ; } extern "C" { int c:F ; } int d:F = b:F + c:F ;'),
        ("#include <a/b.h>\n#define N 4\nint n = N;", "#include <a/b.h> # define N:F 4 int n:F = N:F ;"),
        ('void f(); m.def("f", &f);', 'void f:F ( ) ; m . def ( "f":F , & f:F ) ;'),
        ("auto f = [&](int64_t i) { return i; };", "auto f:F = [ & ] ( int64_t i:0 ) { return i:0 ; } ;"),
        ("int v[2] = {1, 2}; // int w;\n/* int x; */", "int v:F [ 2 ] = { 1 , 2 } ;"),
    ],
)  # fmt: skip
def test_words_when_they_follow_a_type_are_names_of_their_block(source, expected):
    assert declared(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "return f(x * y);",
        "g(a * b, c & d);",
        "x.y = a->b + c::d;",
        "static_cast<const half>(x) + sizeof(float4);",
        "__syncthreads(); else_(x);",
        "struct P { int a; int b; }; int c;",  # members have a scope of their own
        "int a; } int b;",
        "void f() { int a;",
        "using namespace std; std::max(a, b);",
        "while (x) y = 1;",
    ],
)
def test_words_when_nothing_shows_their_declaration_are_no_names(source):
    assert read_native(source)[1] == {}


def test_words_when_they_have_no_declaration_in_one_place_are_names_in_none():
    assert declared("void f(int x) { x; } void g() { x; }") == "void f:F ( int x ) { x ; } void g:F ( ) { x ; }"
    assert declared("int max; { std::max(1); }") == "int max ; { std :: max ( 1 ) ; }"
