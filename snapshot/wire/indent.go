package wire

import (
	"bufio"
	"errors"
	"strings"
)

// Indenter indents one JSON text as json.Indent(…, "", "  ") does, in a fraction of the time and without keeping the text. Like
// kube-apiserver, it leaves out the line break at the end of a list, and all other white space around the text. For invalid
// JSON the output is undefined. The zero value is ready for use.
type Indenter struct {
	// depth is the number of objects and arrays that are open.
	depth int
	// afterOpening reports whether the last token was { or [.
	afterOpening bool
}

// MaxIndentDepth is the deepest nesting of JSON that kube-apiserver indents. The bound is json.Indent's.
const MaxIndentDepth = maxDepth

var errIndentDepth = errors.New("JSON that is nested too deeply to be indented")

// indentStep is the number of spaces per level in kube-apiserver's serializer (k8s.io/apimachinery,
// runtime/serializer/json).
const indentStep = 2

// someSpaces is enough to indent most lines in one write.
var someSpaces = strings.Repeat(" ", indentStep*64)

// Indent writes the next piece of the text, indented. A piece may end anywhere except inside a string. Indent returns an error
// if the text is nested deeper than MaxIndentDepth, or if out fails.
func (in *Indenter) Indent(out *bufio.Writer, piece []byte) error {
	for len(piece) > 0 {
		n := tokenLength(piece)
		if err := in.writeToken(out, piece[:n]); err != nil {
			return err
		}
		piece = piece[n:]
	}
	return nil
}

// tokenLength returns the length of the token that text begins with: a string, or one byte of anything else.
func tokenLength(text []byte) int {
	if text[0] != '"' {
		return 1
	}
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++ // skips the escaped byte, which may be a quotation mark
		case '"':
			return i + 1
		}
	}
	return len(text)
}

// writeToken writes a token (see tokenLength) with the white space around it. It need not check every write, since a
// bufio.Writer that has failed returns its first error from all later writes.
func (in *Indenter) writeToken(out *bufio.Writer, token []byte) error {
	c := token[0]
	if isSpace(c) {
		return nil
	}
	isClosing := c == '}' || c == ']'
	if isClosing {
		in.depth = max(0, in.depth-1)
	}
	// A line begins after an opening bracket and before a closing one, but not between the brackets of {} and [].
	isFirstInside := in.afterOpening && !isClosing
	closesNonempty := !in.afterOpening && isClosing
	if isFirstInside || closesNonempty {
		in.breakLine(out)
	}
	in.afterOpening = c == '{' || c == '['
	_, err := out.Write(token)
	switch c {
	case '{', '[':
		in.depth++
		if in.depth > MaxIndentDepth {
			return errIndentDepth
		}
	case ',':
		in.breakLine(out)
	case ':':
		err = out.WriteByte(' ')
	}
	return err
}

// breakLine ends the line, and writes the spaces at the beginning of the next.
func (in *Indenter) breakLine(out *bufio.Writer) {
	_ = out.WriteByte('\n')
	for spaces := indentStep * in.depth; spaces > 0; spaces -= len(someSpaces) {
		_, _ = out.WriteString(someSpaces[:min(spaces, len(someSpaces))])
	}
}
