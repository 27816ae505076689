"""torch's dtypes by name, for the router, which needs no torch."""

_NAMES = {
    1: "bits1x8 bits2x4 bits4x2 bits8 bool float4_e2m1fn_x2 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz "
    "float8_e8m0fnu int1 int2 int3 int4 int5 int6 int7 int8 qint8 quint2x4 quint4x2 quint8 uint1 uint2 uint3 uint4 uint5 "
    "uint6 uint7 uint8",
    2: "bfloat16 bits16 float16 int16 uint16",
    4: "complex32 float32 int32 qint32 uint32",
    8: "complex64 float64 int64 uint64",
    16: "complex128",
}
ITEMSIZES = {name: nbytes for nbytes, names in _NAMES.items() for name in names.split()}
COMPLEX = {"float16": "complex32", "float32": "complex64", "float64": "complex128"}
