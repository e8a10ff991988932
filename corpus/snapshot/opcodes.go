package snapshot

// maxDepth bounds nested containers: snapshots need 7.
const maxDepth = 64

// refuse names an opcode that data does not take.
func (d *decoder) refuse(op byte, at int64) error {
	if at == 0 {
		return d.fail(0, "give the .pickle that torch.cuda.memory._dump_snapshot wrote, or the .html of _memory_viz.py",
			"no memory snapshot: it begins with %q", op)
	}
	if name, ok := executes[op]; ok {
		return d.fail(at, "it could execute code, which no memory snapshot needs; do not load this file with Python either",
			"opcode %s is refused", name)
	}
	if name, ok := others[op]; ok {
		return d.fail(at, "memory snapshots hold dicts, lists, strings and numbers only", "opcode %s is refused", name)
	}
	return d.fail(at, damagedHint, "byte 0x%02x is no opcode", op)
}

// executes are the opcodes that import, call or fill objects.
var executes = map[byte]string{
	'c': "GLOBAL", 0x93: "STACK_GLOBAL", 'R': "REDUCE", 'b': "BUILD", 'i': "INST", 'o': "OBJ", 0x81: "NEWOBJ", 0x92: "NEWOBJ_EX",
	'P': "PERSID", 'Q': "BINPERSID", 0x82: "EXT1", 0x83: "EXT2", 0x84: "EXT4",
}

// others are opcodes that Python's pickler does not write for this data.
var others = map[byte]string{
	'0': "POP", '1': "POP_MARK", '2': "DUP", 'F': "FLOAT", 'I': "INT", 'L': "LONG", 'S': "STRING", 'T': "BINSTRING", 'U': "SHORT_BINSTRING",
	'V': "UNICODE", 'g': "GET", 'p': "PUT", 'B': "BINBYTES", 'C': "SHORT_BINBYTES", 0x8e: "BINBYTES8", 0x8f: "EMPTY_SET",
	0x90: "ADDITEMS", 0x91: "FROZENSET", 0x96: "BYTEARRAY8", 0x97: "NEXT_BUFFER", 0x98: "READONLY_BUFFER",
}
