package wire

import (
	"bufio"
	"strings"
)

// Indenter indents one JSON text as json.Indent(…, "", "  ") does, in a fraction of the time and without keeping the
// text. The text comes in pieces, which may end anywhere but within a string. The zero value is at the beginning of a
// text. White space around the text is left out: kube-apiserver indents texts without a line break at their end.
//
// It is for JSON that is known to be valid. For other input the output is undefined, but it never
// reads or writes out of bounds.
type Indenter struct {
	// Deepest is the depth of nesting of the pieces that came so far.
	Deepest int

	depth int
	// opened reports whether the last byte opened an object or an array, of which it is not known yet whether it is empty.
	opened bool
}

// MaxIndentDepth is the depth of nesting up to which kube-apiserver indents JSON: beyond it, json.Indent returns an
// error.
const MaxIndentDepth = maxDepth

// indentStep is the number of spaces per level in kube-apiserver's serializer (k8s.io/apimachinery,
// runtime/serializer/json).
const indentStep = 2

// lineBreakDepth is the number of levels for which lineBreak has spaces. Hardly any JSON is nested deeper.
const lineBreakDepth = 64

// lineBreak is a line break and the spaces after it.
var lineBreak = []byte("\n" + strings.Repeat(" ", indentStep*lineBreakDepth))

// Size takes the next piece, and returns the number of bytes that [Indenter.Write] would write for it.
func (in *Indenter) Size(piece []byte) int {
	size := len(piece)
	for i := 0; i < len(piece); {
		c := piece[i]
		if isSpace(c) {
			size--
			i++
			continue
		}
		if in.beginsContent(c) {
			size += in.lineBreakSize()
		}
		switch c {
		case '"':
			i = skipString(piece, i)
			continue
		case ':':
			size++
		case ',':
			size += in.lineBreakSize()
		case '{', '[':
			in.open()
		case '}', ']':
			if in.close() {
				size += in.lineBreakSize()
			}
		}
		i++
	}
	return size
}

// Write takes the next piece and writes it, indented. It returns out's error.
func (in *Indenter) Write(out *bufio.Writer, piece []byte) error {
	w := indented{out: out, buf: out.AvailableBuffer()}
	copied := 0 // the bytes of the piece that were written
	for i := 0; i < len(piece); {
		c := piece[i]
		if isSpace(c) {
			w.put(piece[copied:i])
			i++
			copied = i
			continue
		}
		if in.beginsContent(c) {
			w.put(piece[copied:i])
			copied = i
			w.lineBreak(in.depth)
		}
		switch c {
		case '"':
			i = skipString(piece, i)
			continue
		case ':':
			w.put(piece[copied : i+1])
			copied = i + 1
			w.put(lineBreak[1:2])
		case ',':
			w.put(piece[copied : i+1])
			copied = i + 1
			w.lineBreak(in.depth)
		case '{', '[':
			in.open()
		case '}', ']':
			if in.close() {
				w.put(piece[copied:i])
				copied = i
				w.lineBreak(in.depth)
			}
		}
		i++
	}
	w.put(piece[copied:])
	_, err := out.Write(w.buf)
	return err
}

// beginsContent takes a byte that is no space, and reports whether it is the first one in an object or an array. It
// gets a line of its own then.
func (in *Indenter) beginsContent(c byte) bool {
	if !in.opened || c == '}' || c == ']' {
		return false
	}
	in.opened = false
	return true
}

// open begins an object or an array.
func (in *Indenter) open() {
	in.opened = true
	in.depth++
	in.Deepest = max(in.Deepest, in.depth)
}

// close ends an object or an array, and reports whether that has content. Its last bracket gets a line of its own then.
func (in *Indenter) close() bool {
	in.depth = max(0, in.depth-1)
	empty := in.opened
	in.opened = false
	return !empty
}

// lineBreakSize returns the number of bytes of a line break and the spaces after it.
func (in *Indenter) lineBreakSize() int { return 1 + indentStep*in.depth }

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// indented writes directly into the buffer of a bufio.Writer, which costs less than many small
// writes.
type indented struct {
	out *bufio.Writer
	buf []byte // the part of out's buffer that is free, and what was put there
}

// put writes some bytes.
func (w *indented) put(p []byte) {
	if len(p) > cap(w.buf)-len(w.buf) {
		w.makeRoom(len(p))
		if len(p) > cap(w.buf) {
			_, _ = w.out.Write(p) // out keeps its error
			w.buf = w.out.AvailableBuffer()
			return
		}
	}
	w.buf = append(w.buf, p...)
}

// makeRoom hands what was put to out, and tries to have room for n bytes.
func (w *indented) makeRoom(n int) {
	_, _ = w.out.Write(w.buf)
	if n > w.out.Available() {
		_ = w.out.Flush()
	}
	w.buf = w.out.AvailableBuffer()
}

// lineBreak writes a line break and the spaces after it.
func (w *indented) lineBreak(depth int) {
	w.put(lineBreak[:1+indentStep*min(depth, lineBreakDepth)])
	for depth -= lineBreakDepth; depth > 0; depth -= lineBreakDepth {
		w.put(lineBreak[1 : 1+indentStep*min(depth, lineBreakDepth)])
	}
}
