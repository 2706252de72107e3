package wire

import (
	"slices"
	"unique"

	"google.golang.org/protobuf/encoding/protowire"
)

// FieldPaths finds the values of fields in an object, in one pass over the object. It is immutable. If one of the fields
// is indexed, it is the first.
//
// For example, the paths of spec.nodeName and spec.restartPolicy in JSON are a root with the child "spec". This has the
// children "nodeName" for field 0 and "restartPolicy" for field 1.
type FieldPaths struct {
	fields   []Field
	json     *pathNode[string]
	protobuf *pathNode[protowire.Number]
}

// pathNode is a node of the tree of all paths. Its key in the parent is the name of a JSON member, or the number of a
// protobuf field.
type pathNode[K comparable] struct {
	// fields are the indexes of the fields whose path ends here. They are several if a value has several names.
	fields   []int
	children map[K]*pathNode[K]
}

// NewFieldPaths returns the paths to fields, in this order, except that the indexed field comes first.
func NewFieldPaths(all []Field) *FieldPaths {
	p := &FieldPaths{fields: slices.Clone(all), json: newPathNode[string](), protobuf: newPathNode[protowire.Number]()}
	if i := slices.IndexFunc(all, func(f Field) bool { return f.Indexed }); i > 0 {
		p.fields = slices.Insert(slices.Delete(p.fields, i, i+1), 0, all[i])
	}
	for i, f := range p.fields {
		p.json.add(f.JSON, i)
		p.protobuf.add(f.Protobuf, i)
	}
	return p
}

func newPathNode[K comparable]() *pathNode[K] {
	return &pathNode[K]{children: map[K]*pathNode[K]{}}
}

// add adds the path to a field.
func (n *pathNode[K]) add(path []K, field int) {
	for _, step := range path {
		if n.children[step] == nil {
			n.children[step] = newPathNode[K]()
		}
		n = n.children[step]
	}
	n.fields = append(n.fields, field)
}

// HasIndexed reports whether there is an indexed field, which is the first.
func (p *FieldPaths) HasIndexed() bool {
	return len(p.fields) > 0 && p.fields[0].Indexed
}

// IsIndexed reports whether field i is the indexed field, or another name for its value. -1 is not.
func (p *FieldPaths) IsIndexed(i int) bool {
	return p.HasIndexed() && i >= 0 && slices.Equal(p.fields[i].JSON, p.fields[0].JSON)
}

// Find returns the index of the field with a name, or -1.
func (p *FieldPaths) Find(name string) int {
	return slices.IndexFunc(p.fields, func(f Field) bool { return f.Name == name })
}

// equal reports whether both have the same fields with the same paths.
func (p *FieldPaths) equal(other *FieldPaths) bool {
	return slices.EqualFunc(p.fields, other.fields, Field.equal)
}

// equal reports whether both fields are the same, with the same paths.
func (f Field) equal(other Field) bool {
	return f.Name == other.Name && f.Zero == other.Zero && f.Indexed == other.Indexed &&
		slices.Equal(f.JSON, other.JSON) && slices.Equal(f.Protobuf, other.Protobuf)
}

// WithUID returns the paths of p and the path to [UIDField].
func (p *FieldPaths) WithUID() *FieldPaths {
	uid := Field{Name: UIDField, JSON: []string{"metadata", "uid"}, Protobuf: []protowire.Number{1, 5}}
	return NewFieldPaths(append(slices.Clone(p.fields), uid))
}

// zeros returns the values of an object that has none of the fields.
func (p *FieldPaths) zeros() []string {
	values := make([]string, len(p.fields))
	for i, f := range p.fields {
		values[i] = f.Zero
	}
	return values
}

// intern returns a copy of a value that all objects with the value share.
func intern(value string) string { return unique.Make(value).Value() }
