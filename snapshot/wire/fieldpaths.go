package wire

import (
	"fmt"
	"slices"
	"strconv"
	"unique"

	"google.golang.org/protobuf/encoding/protowire"
)

// FieldPaths finds the values of selectable fields in an object, in one pass over the object. A selectable field is one that a
// field selector may name. A FieldPaths is immutable.
//
// For example, field 0 is spec.nodeName, and field 1 is spec.restartPolicy. Their JSON paths are this tree:
//
//	root ── "spec" ┬─ "nodeName", the end of field 0
//	               └─ "restartPolicy", the end of field 1
type FieldPaths struct {
	fields []Field // If one of them is indexed, it is the first.
	// json and protobuf are the roots of the trees of all paths.
	json     *pathNode[string]
	protobuf *pathNode[protowire.Number]
}

// pathNode is a node of a tree of paths. Its key in the parent is the name of a JSON member, or the number of a protobuf field.
type pathNode[K comparable] struct {
	// ends has the indexes of the fields whose path ends here. There are several if a value has several names, like
	// spec.nodeName of pods, which is also spec.host.
	ends     []int
	children map[K]*pathNode[K]
}

// NewFieldPaths returns the paths to fields. The caller must not change fields afterwards. An indexed field must be the first.
func NewFieldPaths(fields []Field) *FieldPaths {
	p := &FieldPaths{fields: fields, json: newPathNode[string](), protobuf: newPathNode[protowire.Number]()}
	for i, f := range fields {
		p.json.add(f.JSON, i)
		p.protobuf.add(f.Protobuf, i)
	}
	return p
}

func newPathNode[K comparable]() *pathNode[K] {
	return &pathNode[K]{children: map[K]*pathNode[K]{}}
}

// add adds the path of field i to the tree. n is the root.
func (n *pathNode[K]) add(path []K, i int) {
	node := n
	for _, step := range path {
		if node.children[step] == nil {
			node.children[step] = newPathNode[K]()
		}
		node = node.children[step]
	}
	node.ends = append(node.ends, i)
}

// isEnd reports whether the path of a field ends here.
func (n *pathNode[K]) isEnd() bool { return len(n.ends) > 0 }

// HasIndexed reports whether the first field is indexed. No other field can be.
func (p *FieldPaths) HasIndexed() bool {
	return len(p.fields) > 0 && p.fields[0].Indexed
}

// IsIndexed reports whether field i has the value of the indexed field: it is that field, or another name of it. IsIndexed(-1)
// is false.
func (p *FieldPaths) IsIndexed(i int) bool {
	return p.HasIndexed() && i >= 0 && slices.Equal(p.fields[i].JSON, p.fields[0].JSON)
}

// Find returns the index of the field with a name, or -1.
func (p *FieldPaths) Find(name string) int {
	return slices.IndexFunc(p.fields, func(f Field) bool { return f.Name == name })
}

// WithUID returns the paths of p and the path to [UIDField].
func (p *FieldPaths) WithUID() *FieldPaths {
	uid := Field{Name: UIDField, JSON: []string{"metadata", "uid"}, Protobuf: []protowire.Number{metadataField, metaUIDField}}
	return NewFieldPaths(append(slices.Clone(p.fields), uid))
}

// ReadValues reads the values of the fields from an item, in the order of the fields. If the item lacks a field, the value is
// [Field.Zero]. After an error, the values must not be used.
func (p *FieldPaths) ReadValues(encoding Encoding, item []byte) ([]string, error) {
	if len(p.fields) == 0 {
		return nil, nil
	}
	values := make([]string, len(p.fields))
	for i, f := range p.fields {
		values[i] = f.Zero
	}
	return values, encoding.readValues(p, item, values)
}

// readValues implements Encoding.
func (jsonEncoding) readValues(paths *FieldPaths, item []byte, values []string) error {
	s := jsonScanner{text: item}
	return s.readFieldValues(paths.json, values)
}

// readFieldValues reads an object. It sets values[i] for each field i that is in the object. node is the object's node in the
// tree of paths. If a key appears twice, the last value counts that is not null.
func (s *jsonScanner) readFieldValues(node *pathNode[string], values []string) error {
	return s.object(func(key []byte) error {
		if s.skipNull() { // A null is like an absent member.
			return nil
		}
		child := node.children[string(key)]
		switch {
		case child == nil: // No path leads here.
			return s.skip()
		case child.isEnd():
			text, err := s.selectableText()
			child.setValues(values, text)
			return err
		case s.peek() == '{':
			return s.readFieldValues(child, values)
		}
		return s.skip() // The value is not an object, so the path ends too early.
	})
}

// setValues sets values[i] to text for each field i whose path ends here.
func (n *pathNode[K]) setValues(values []string, text string) {
	for _, i := range n.ends {
		values[i] = text
	}
}

// selectableText reads a string, a boolean or a number, and returns the text with which field selectors compare it: for a
// boolean or a number, the JSON itself.
func (s *jsonScanner) selectableText() (string, error) {
	switch s.peek() {
	case '"':
		text, err := s.stringOrNull()
		return intern(text), err
	case '{', '[':
		return "", fmt.Errorf("%w: a selectable field holds no single value", errMalformed)
	}
	value, err := s.value()
	return intern(string(value)), err
}

// readValues implements Encoding.
func (protobufEncoding) readValues(paths *FieldPaths, item []byte, values []string) error {
	return readProtobufValues(paths, paths.protobuf, item, values)
}

// readProtobufValues sets values[i] for each field i that is in a message. node is the message's node in the tree of paths.
func readProtobufValues(paths *FieldPaths, node *pathNode[protowire.Number], message []byte, values []string) error {
	return walkFields(message, func(f wireField) error {
		child := node.children[f.number]
		switch {
		case child == nil: // No path leads here.
			return nil
		case child.isEnd():
			zero := paths.fields[child.ends[0]].Zero // All fields that end here have the same Zero.
			text, err := f.selectableText(zero)
			child.setValues(values, text)
			return err
		case f.wireType != protowire.BytesType:
			return f.unexpected("a message on the path to a selectable field")
		}
		return readProtobufValues(paths, child, f.content, values)
	})
}

// selectableText returns the value of f as field selectors compare it. The bytes do not show the type of the value, but zero
// does, the [Field.Zero] of the field: "" for a string, "false" for a boolean, "0" for an integer.
func (f wireField) selectableText(zero string) (string, error) {
	switch {
	case zero == "" && f.wireType == protowire.BytesType:
		return intern(string(f.content)), nil
	case zero == "false" && f.wireType == protowire.VarintType:
		return strconv.FormatBool(f.varint != 0), nil
	case zero == "0" && f.wireType == protowire.VarintType:
		return intern(strconv.FormatInt(int64(f.varint), 10)), nil // #nosec G115 -- an int on the wire
	}
	return "", f.unexpected("a selectable field")
}

// intern returns a copy of a value. All objects with the same value share the copy.
func intern(value string) string { return unique.Make(value).Value() }
