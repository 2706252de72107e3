package index

import "slices"

// Bucket is a set of objects, for example those of one namespace. The zero Bucket has all objects. Buckets serve to find the
// filters that a change concerns: each filter is kept under its [Filter.NarrowestBucket], and a change is compared only with the
// filters under its [Change.Buckets].
//
// kube-apiserver dispatches events by the same properties (storage/cacher, its triggers and scopes), and by one more: a
// name in all namespaces.
type Bucket struct {
	kind  bucketKind
	value string
}

// bucketKind is the property that all objects of a bucket have in common. Bucket.value is the value of this property.
type bucketKind uint8

const (
	allObjects bucketKind = iota
	ofNamespace
	ofIndexedValue // of the indexed field, such as the node of a pod
	ofKey
)

// NarrowestBucket returns the narrowest bucket that has all objects of the filter.
func (f *Filter) NarrowestBucket() Bucket {
	switch {
	case f.key != "":
		return Bucket{kind: ofKey, value: f.key}
	case f.hasIndexedValue:
		return Bucket{kind: ofIndexedValue, value: f.indexedValue}
	case f.namespace != "":
		return Bucket{kind: ofNamespace, value: f.namespace}
	}
	return Bucket{}
}

// Buckets returns the buckets that have the object before or after the change, each once.
func (c Change) Buckets() (all []Bucket) {
	for _, o := range []*Object{c.Before, c.After} {
		if o == nil {
			continue
		}
		for _, b := range o.buckets() {
			if !slices.Contains(all, b) {
				all = append(all, b)
			}
		}
	}
	return all
}

// buckets returns the buckets that have the object.
func (o *Object) buckets() []Bucket {
	all := []Bucket{{}, {kind: ofKey, value: o.Key}, {kind: ofNamespace, value: o.namespace()}}
	if len(o.Fields) > 0 {
		all = append(all, Bucket{kind: ofIndexedValue, value: o.Fields[0]}) // the indexed field is the first
	}
	return all
}
