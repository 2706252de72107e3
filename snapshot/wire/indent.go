package wire

import (
	"bufio"
	"errors"
	"strings"
)

// Indenter indents one JSON text as json.Indent(…, "", "  ") does, in a fraction of its time and without keeping the text.
// The line break at the end of a list is left out, like all white space around the text. kube-apiserver leaves it out, too.
// For invalid JSON the output is undefined. The zero value is ready for use.
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

// someSpaces indents most lines in one write. Deeper lines need several.
var someSpaces = strings.Repeat(" ", indentStep*64)

// Indent writes the next piece of the text, indented. Pieces may end anywhere but within a string. It returns an error
// if the text is nested deeper than MaxIndentDepth, or out fails.
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

// tokenLength returns the length of the string at the beginning of text; 1 if text begins with something else.
func tokenLength(text []byte) int {
	if text[0] != '"' {
		return 1
	}
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++ // Skip the escaped byte, which may be a quotation mark.
		case '"':
			return i + 1
		}
	}
	return len(text)
}

// writeToken writes a string, or one byte outside of strings. It need not check every write, since a bufio.Writer that has
// failed returns its first error from all later writes.
func (in *Indenter) writeToken(out *bufio.Writer, token []byte) error {
	c := token[0]
	if c == ' ' || c == '\n' || c == '\t' || c == '\r' {
		return nil
	}
	closes := c == '}' || c == ']'
	if closes {
		in.depth = max(0, in.depth-1)
	}
	// A line begins after an opening bracket and before a closing one, but not between the brackets of {} and [].
	beginsContent := in.afterOpening && !closes
	endsContent := closes && !in.afterOpening
	if beginsContent || endsContent {
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

// breakLine begins an indented line.
func (in *Indenter) breakLine(out *bufio.Writer) {
	_ = out.WriteByte('\n')
	for spaces := indentStep * in.depth; spaces > 0; spaces -= len(someSpaces) {
		_, _ = out.WriteString(someSpaces[:min(spaces, len(someSpaces))])
	}
}
