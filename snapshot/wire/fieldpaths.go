package wire

import (
	"slices"
	"unique"

	"google.golang.org/protobuf/encoding/protowire"
)

// FieldPaths finds the values of fields in an object, in one pass over it. It is immutable. The indexed field comes
// first, if there is one.
//
// For example, the paths of spec.nodeName and spec.restartPolicy in JSON are a root with the child "spec", which has
// the children "nodeName", where field 0 is, and "restartPolicy", where field 1 is.
type FieldPaths struct {
	fields   []Field
	json     *pathNode[string]
	protobuf *pathNode[protowire.Number]
}

// pathNode is a node of the tree of all paths. Its key in the parent is the name of a JSON member, or the number of a
// protobuf field.
type pathNode[K comparable] struct {
	// fields are the indexes of the fields whose path ends here: two can be names for one value.
	fields   []int
	children map[K]*pathNode[K]
}

// NewFieldPaths returns the paths to fields, in this order, except that the indexed one comes first.
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

// HasIndexed reports whether the first field is the one to be indexed.
func (p *FieldPaths) HasIndexed() bool {
	return len(p.fields) > 0 && p.fields[0].Indexed
}

// IsIndexed reports whether field i is the indexed one, or another name for it.
func (p *FieldPaths) IsIndexed(i int) bool {
	return p.HasIndexed() && i >= 0 && slices.Equal(p.fields[i].JSON, p.fields[0].JSON)
}

// Find returns the index of the field with a name, or -1.
func (p *FieldPaths) Find(name string) int {
	return slices.IndexFunc(p.fields, func(f Field) bool { return f.Name == name })
}

// equal reports whether both have the same paths to the same fields.
func (p *FieldPaths) equal(q *FieldPaths) bool {
	return slices.EqualFunc(p.fields, q.fields, Field.equal)
}

// equal reports whether both fields are the same, with the same paths.
func (f Field) equal(g Field) bool {
	return f.Name == g.Name && f.Zero == g.Zero && f.Indexed == g.Indexed && slices.Equal(f.JSON, g.JSON) &&
		slices.Equal(f.Protobuf, g.Protobuf)
}

// WithUID returns the same paths, and the one to [UIDField].
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

// intern returns the one copy of a value: many objects have the same.
func intern(value string) string { return unique.Make(value).Value() }
