package index

import (
	"hash/maphash"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/listproxy/listproxy/snapshot/wire"
)

// signature is a Bloom filter of a set of labels: two bits for each label. A set that lacks one of a label's bits
// does not have that label. So a search passes over sets without reading them: with eight labels, all but one in
// twenty of those that do not have the label.
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

// sieve finds sets of labels that a selector cannot choose, by their signatures alone.
type sieve struct {
	// all has the bits of the labels that the selector demands.
	all signature
	// oneOf has lists of alternatives: a set must have all bits of at least one signature of each list.
	oneOf [][]signature
}

// maxAlternatives is the largest number of values of a requirement for which a sieve has signatures.
const maxAlternatives = 8

// newSieve returns the sieve of a selector.
func newSieve(selector labels.Selector) (s sieve) {
	requirements, _ := selector.Requirements()
	for _, r := range requirements {
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			var alternatives []signature
			for _, value := range r.ValuesUnsorted() {
				alternatives = append(alternatives, labelBits(r.Key(), value))
			}
			switch n := len(alternatives); {
			case n == 1:
				s.all |= alternatives[0]
			case n <= maxAlternatives:
				s.oneOf = append(s.oneOf, alternatives)
			}
		}
	}
	return s
}

// mayPass reports whether the selector may choose a set with this signature. Of the union of many signatures, it
// reports whether the selector may choose any of the sets.
func (s *sieve) mayPass(set signature) bool {
	return set.has(s.all) && (len(s.oneOf) == 0 || s.hasOneOfEach(set))
}

// hasOneOfEach reports whether a set with this signature may have a label of each list of alternatives.
func (s *sieve) hasOneOfEach(set signature) bool {
	for _, alternatives := range s.oneOf {
		if !slices.ContainsFunc(alternatives, set.has) {
			return false
		}
	}
	return true
}
