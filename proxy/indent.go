package proxy

import (
	"bufio"
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

const (
	// indentStep is the indentation of one level in kube-apiserver (k8s.io/apimachinery, runtime/serializer/json).
	indentStep = "  "
	// itemDepth is the number of levels around each item of a list.
	itemDepth = 2
)

// writeIndented writes the list as json.Indent(…, "", "  ") does, and flushes out. Like kube-apiserver, it leaves out the line
// break at the end. An error means that out has failed, or that json.Indent refuses an object. For example:
//
//	before   {⏎  "kind": "PodList",⏎  …  "items": [
//	objects  ⏎    {⏎      "metadata": …⏎    },⏎    {⏎      "metadata": …⏎    }
//	after    ⏎  ]⏎}
func writeIndented(out *bufio.Writer, b *body) error {
	placeholder := "0" // It stands for the objects.
	if len(b.objects) == 0 {
		placeholder = ""
	}
	var text bytes.Buffer
	list := slices.Concat(b.head, []byte(placeholder), bytes.TrimSpace(b.tail))
	if err := json.Indent(&text, list, "", indentStep); err != nil {
		return err
	}
	// No other line is a 0, since all other values of a list come after a key.
	before, after, _ := strings.Cut(text.String(), "\n    0")
	_, _ = out.WriteString(before) // After an error, a bufio.Writer returns it from all later calls.
	for i, o := range b.objects {
		if i > 0 {
			_ = out.WriteByte(',')
		}
		text.Reset()
		if err := json.Indent(&text, o.Bytes, "", ""); err != nil {
			return err
		}
		if err := writeIndentedLines(out, text.Bytes()); err != nil {
			return err
		}
	}
	_, _ = out.WriteString(after)
	return out.Flush()
}

// writeIndentedLines indents the lines of an item, and writes them, each after a line break. The indentation of an object can be
// a thousand times as long as its text, so it is never in memory as a whole.
func writeIndentedLines(out *bufio.Writer, text []byte) error {
	depth := itemDepth
	for line := range bytes.SplitSeq(text, []byte("\n")) {
		if line[0] == '}' || line[0] == ']' {
			depth--
		}
		_ = out.WriteByte('\n')
		for range depth {
			_, _ = out.WriteString(indentStep)
		}
		if _, err := out.Write(line); err != nil {
			return err
		}
		if last := line[len(line)-1]; last == '{' || last == '[' {
			depth++
		}
	}
	return nil
}
