package index

import "slices"

// Bucket is a set of objects with one property in common, for example all objects of one namespace. The zero Bucket has all
// objects.
//
// Buckets serve to find the watches that a change concerns. Each watch is kept in one bucket: the smallest that has all objects
// of the watch ([Filter.NarrowestBucket]). When an object changes, only the watches in the object's buckets are looked at
// ([Change.Buckets]). For example, the pod ns/p on node n1 has four buckets:
//
//	bucket           the watches that are kept in it
//	all objects      watches that fit in no smaller bucket, such as those with a label selector alone
//	of namespace ns  watches of namespace ns
//	of node n1       watches with the field selector spec.nodeName=n1
//	of key ns/p      watches of this pod
//
// kube-apiserver dispatches events by the same properties (storage/cacher, its triggers and scopes). It also dispatches by a
// name in all namespaces, for which there is no bucket here.
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

// NarrowestBucket returns the smallest bucket that has all objects of the filter. The value of the indexed field may be "",
// such as the node of a pod without a node.
func (f *Filter) NarrowestBucket() Bucket {
	switch {
	case f.key != "":
		return Bucket{kind: ofKey, value: f.key}
	case f.hasIndexedValue:
		return Bucket{kind: ofIndexedValue, value: f.indexedValue}
	case f.namespace != "":
		return Bucket{kind: ofNamespace, value: f.namespace}
	}
	return Bucket{kind: allObjects}
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
	all := []Bucket{{kind: allObjects}, {kind: ofKey, value: o.Key}, {kind: ofNamespace, value: o.namespace()}}
	if len(o.Fields) > 0 {
		all = append(all, Bucket{kind: ofIndexedValue, value: o.Fields[0]}) // The indexed field is the first.
	}
	return all
}
