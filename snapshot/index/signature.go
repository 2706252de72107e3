package index

import (
	"math/bits"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/listproxy/listproxy/snapshot/wire"
)

// signature is a set of labels in 128 bits (a Bloom filter): each label sets some bits, and a set
// that lacks one of a label's bits does not have that label. With it a scan can skip sets without
// reading them. With eight labels a quarter of the bits are set, and one set in two hundred passes
// for a label that it does not have.
type signature [2]uint64

// everything has all bits, and so never says that a label is not there.
var everything = signature{^uint64(0), ^uint64(0)}

// signatureOf the labels of a set.
func signatureOf(s wire.Labels) signature {
	var all signature
	if !s.Each(func(key, value string) { all = all.with(keySignature(key)).with(pairSignature(key, value)) }) {
		return everything
	}
	return all
}

// keySignature is one bit for the key of a label.
func keySignature(key string) signature { return bit(uint64(hashOf(key))) }

// pairSignature are four bits for a label, or fewer.
func pairSignature(key, value string) signature {
	both := Mix(uint64(hashOf(key)), uint64(hashOf(value)))
	return bit(both).with(bit(both >> 16)).with(bit(both >> 32)).with(bit(both >> 48))
}

// bit is the one of 128 that the lowest seven bits of a hash name.
func bit(hash uint64) signature {
	var s signature
	s[hash>>6&1] = 1 << (hash & 63)
	return s
}

// with has the bits of both.
func (s signature) with(t signature) signature { return signature{s[0] | t[0], s[1] | t[1]} }

// hasAll reports whether s has all bits of t.
func (s signature) hasAll(t signature) bool { return s[0]&t[0] == t[0] && s[1]&t[1] == t[1] }

// sieve finds, by signatures alone, sets that a selector cannot choose.
type sieve struct {
	// all are bits that must be there.
	all signature
	// oneOf are alternatives: of each element, one signature must be there with all its bits.
	oneOf [][]signature
}

// maxPairs is the number of values of a label up to which each is looked for by itself.
const maxPairs = 8

// newSieve returns the sieve of a selector; one that lets all pass if nothing can be told from it.
func newSieve(selector labels.Selector) sieve {
	var s sieve
	requirements, selectable := selector.Requirements()
	if !selectable {
		return s
	}
	for _, r := range requirements {
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			s.all = s.all.with(keySignature(r.Key()))
			if len(r.Values()) > maxPairs {
				continue
			}
			var pairs []signature
			for value := range r.Values() {
				pairs = append(pairs, pairSignature(r.Key(), value))
			}
			if len(pairs) == 1 {
				s.all = s.all.with(pairs[0])
				continue
			}
			s.oneOf = append(s.oneOf, pairs)
		case selection.Exists, selection.GreaterThan, selection.LessThan:
			s.all = s.all.with(keySignature(r.Key()))
		default: // chooses what has not got something
		}
	}
	return s
}

// mayPass reports whether what has this signature may be chosen.
func (s *sieve) mayPass(of signature) bool {
	return of.hasAll(s.all) && (len(s.oneOf) == 0 || s.passesOneOf(of))
}

func (s *sieve) passesOneOf(of signature) bool {
	for _, term := range s.oneOf {
		if !slices.ContainsFunc(term, of.hasAll) {
			return false
		}
	}
	return true
}

// hashOf is FNV-1a, mixed so that its high bits are as good as its low ones.
func hashOf(key string) uint32 {
	hash := uint32(2166136261)
	for i := range len(key) {
		hash = (hash ^ uint32(key[i])) * 16777619
	}
	hash ^= hash >> 16
	hash *= 0x85ebca6b
	hash ^= hash >> 13
	return hash * 0xc2b2ae35
}

// Mix makes one hash of two.
func Mix(a, b uint64) uint64 {
	high, low := bits.Mul64(a^0x9e3779b97f4a7c15, b^0xbf58476d1ce4e5b9)
	return bits.RotateLeft64(a, 23) ^ high ^ low
}
