package policy

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxConfigSize bounds a policy file, in bytes.
const maxConfigSize = 1 << 20

// ParseConfig reads a policy file, YAML or JSON. Name is what errors and Rule.Source call
// it. It is strict: an unknown field, or one that is given twice, is an error. All errors are
// returned at once (errors.Join), in the order of their lines, each as "name:line: field: what is
// wrong: what to write instead".
func ParseConfig(name string, data []byte) (*Config, error) {
	d := &decoder{name: name}
	root := d.document(data)
	if root == nil {
		return nil, d.err()
	}
	defaults, statements := d.policy(root)
	if err := d.err(); err != nil {
		return nil, err
	}
	c := newConfig(name, defaults, statements)
	c.file = File{Name: name, SHA256: fmt.Sprintf("%x", sha256.Sum256(data))}
	d.checkEager(c, statements)
	d.checkNewestAsAny(c, statements)
	d.checkKept(c, statements)
	if err := d.err(); err != nil {
		return nil, err
	}
	return c, nil
}

// decoder walks the nodes of a file and collects what is wrong.
type decoder struct {
	name   string
	faults []fault
}

// fault is one thing that is wrong.
type fault struct {
	line int
	text string
}

func (d *decoder) fault(line int, field, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if field != "" {
		text = field + ": " + text
	}
	d.faults = append(d.faults, fault{line, text})
}

func (d *decoder) err() error {
	slices.SortStableFunc(d.faults, func(a, b fault) int { return cmp.Compare(a.line, b.line) })
	var errs []error
	for _, f := range d.faults {
		errs = append(errs, fmt.Errorf("%s:%d: %s", d.name, f.line, f.text))
	}
	return errors.Join(errs...)
}

// document returns the one node of the file, or nil after a fault.
func (d *decoder) document(data []byte) *yaml.Node {
	if len(data) > maxConfigSize {
		d.fault(1, "", "the file has %d bytes: a policy has at most %d", len(data), maxConfigSize)
		return nil
	}
	reader := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	err := reader.Decode(&document)
	switch {
	case errors.Is(err, io.EOF):
		d.fault(1, "", "the file is empty: it begins with \"apiVersion: %s\" and \"kind: %s\"", ConfigAPIVersion, ConfigKind)
		return nil
	case err != nil:
		d.syntax(err)
		return nil
	}
	var second yaml.Node
	switch err := reader.Decode(&second); {
	case err == nil:
		d.fault(max(second.Line, 1), "", "a second document begins here: one file holds one policy")
		return nil
	case !errors.Is(err, io.EOF):
		d.syntax(err)
		return nil
	}
	if d.refuse(&document, 0); len(d.faults) > 0 {
		return nil
	}
	return document.Content[0]
}

// yamlLine is where the parser of YAML says what is wrong.
var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

func (d *decoder) syntax(err error) {
	text, line := err.Error(), 1
	if found := yamlLine.FindStringSubmatch(text); found != nil {
		text = text[len(found[0]):]
		if n, err := strconv.Atoi(found[1]); err == nil && n > 0 {
			line = n
		}
	}
	d.fault(line, "", "this is neither YAML nor JSON: %s", text)
}

// maxDepth is more than a policy needs.
const maxDepth = 16

// refuse finds features of YAML that a policy must not use, with which a setting can be written in
// another place: anchors, aliases, merge keys and tags.
func (d *decoder) refuse(n *yaml.Node, depth int) {
	switch {
	case depth > maxDepth:
		d.fault(n.Line, "", "this is nested too deeply for a policy")
		return
	case n.Kind == yaml.AliasNode:
		d.fault(n.Line, "", "*%s: aliases are not read: write the value out", n.Value)
		return
	case n.Anchor != "":
		d.fault(n.Line, "", "&%s: anchors are not read: leave it out", n.Anchor)
	case n.Tag == "!!merge":
		d.fault(n.Line, "", "<<: merge keys are not read: write the fields out, or in defaults")
	case n.Style&yaml.TaggedStyle != 0:
		d.fault(n.Line, "", "%s: tags are not read: leave it out", n.Tag)
	}
	for _, child := range n.Content {
		d.refuse(child, depth+1)
	}
}

// field is what reads the value of one key.
type field struct {
	name string
	read func(path string, value *yaml.Node)
}

// mapping reads the fields of a mapping, and returns the line of each. ok is false if
// the node is no mapping.
func (d *decoder) mapping(path string, n *yaml.Node, fields []field) (lines map[string]int, ok bool) {
	if n.Kind != yaml.MappingNode {
		d.fault(n.Line, path, "this is %s: write fields here (%s)", describe(n), fieldNames(fields))
		return nil, false
	}
	lines = map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		name := key.Value
		at := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
		switch {
		case key.Kind != yaml.ScalarNode || at < 0:
			d.fault(key.Line, path, "unknown field %s: there are %s", describe(key), fieldNames(fields))
			continue
		case lines[name] != 0:
			d.fault(key.Line, join(path, name), "is given a second time, after line %d: leave one of them out", lines[name])
			continue
		}
		lines[name] = key.Line
		fields[at].read(join(path, name), value)
	}
	return lines, true
}

func fieldNames(fields []field) string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	return strings.Join(names, ", ")
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// sequence reads the elements of a list, and reports whether the node is one.
func (d *decoder) sequence(path string, n *yaml.Node, read func(path string, element *yaml.Node)) bool {
	if n.Kind != yaml.SequenceNode {
		d.fault(n.Line, path, "this is %s: write a list here", describe(n))
		return false
	}
	for i, element := range n.Content {
		read(fmt.Sprintf("%s[%d]", path, i), element)
	}
	return true
}

// text reads a string.
func (d *decoder) text(path string, n *yaml.Node) (string, bool) {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!str" {
		d.fault(n.Line, path, "this is %s: write text here", describe(n))
		return "", false
	}
	return n.Value, true
}

// describe says in a few words what a node is.
func describe(n *yaml.Node) string {
	const longest = 40
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!null":
		return "empty"
	case len(n.Value) > longest:
		return fmt.Sprintf("%q…", n.Value[:longest])
	case n.Tag == "!!int", n.Tag == "!!float":
		return "the number " + n.Value
	case n.Tag == "!!bool":
		return "the truth value " + n.Value
	}
	return strconv.Quote(n.Value)
}

// word reads one of the words of an enumeration.
func word[T ~string](d *decoder, path string, n *yaml.Node, allowed ...T) *T {
	value, ok := d.text(path, n)
	if !ok {
		return nil
	}
	if !slices.Contains(allowed, T(value)) {
		names := make([]string, len(allowed))
		for i, a := range allowed {
			names[i] = string(a)
		}
		d.fault(n.Line, path, "%s is not known: choose %s", describe(n), strings.Join(names, ", "))
		return nil
	}
	return new(T(value))
}
