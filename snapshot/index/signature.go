package index

import (
	"hash/maphash"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/listproxy/listproxy/snapshot/wire"
)

// signature is a Bloom filter of a set of labels: of its 64 bits, each label sets two. A set can have a label only if its
// signature has both bits of the label. So Tree.ascendRequired, which searches for a label, skips most objects without the
// label, and looks only at the signature of each. For example, the eight labels of an object set about 22 % of the bits. A
// label that the object lacks has both bits among them with the probability 0.22², so 19 of 20 such objects are skipped.
type signature uint64

// signatureOf returns the signature of a set of labels.
func signatureOf(set wire.Labels) (s signature) {
	for key, value := range set.All {
		s |= labelBits(key, value)
	}
	return s
}

// labelBits returns the signature of a set with one label.
func labelBits(key, value string) signature {
	hash := maphash.Comparable(keySeed, [2]string{key, value})
	return 1<<(hash&63) | 1<<(hash>>6&63)
}

// has reports whether s has all bits of required.
func (s signature) has(required signature) bool { return s&required == required }

// requiredSignature returns the signature of the labels that a selector requires. All sets that the selector chooses have these
// bits.
func requiredSignature(selector labels.Selector) (s signature) {
	requirements, _ := selector.Requirements() // none if the selector chooses nothing, so any signature is right
	for _, r := range requirements {
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			// If there are several values, none of them is required.
			if values := r.ValuesUnsorted(); len(values) == 1 {
				s |= labelBits(r.Key(), values[0])
			}
		}
	}
	return s
}
