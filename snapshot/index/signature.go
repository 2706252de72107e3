package index

import (
	"math/bits"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/listproxy/listproxy/snapshot/wire"
)

// signature is a Bloom filter of a set of labels, in 128 bits. Each label sets some bits, and a set that lacks one of
// a label's bits does not have that label. So a scan can skip sets without reading them. With eight labels a quarter of
// the bits are set, and one set in two hundred passes for a label that it does not have.
type signature [2]uint64

// everything has all bits: it passes for every label.
var everything = signature{^uint64(0), ^uint64(0)}

// signatureOf returns the signature of a set of labels; everything if the set is too large to visit each label.
func signatureOf(s wire.Labels) signature {
	var all signature
	visited := s.Each(func(key, value string) { all = all.union(keySignature(key)).union(pairSignature(key, value)) })
	if !visited {
		return everything
	}
	return all
}

// keySignature returns a signature with one bit, for the key of a label.
func keySignature(key string) signature { return bit(uint64(hashOf(key))) }

// pairSignature returns a signature with four bits or fewer, for the key and the value of a label.
func pairSignature(key, value string) signature {
	both := Mix(uint64(hashOf(key)), uint64(hashOf(value)))
	return bit(both).union(bit(both >> 16)).union(bit(both >> 32)).union(bit(both >> 48))
}

// bit returns a signature with one bit, whose number is in the lowest seven bits of a hash.
func bit(hash uint64) signature {
	var s signature
	s[(hash>>6)&1] = 1 << (hash & 63)
	return s
}

// union returns the bits of both.
func (s signature) union(t signature) signature { return signature{s[0] | t[0], s[1] | t[1]} }

// hasAll reports whether s has all bits of t.
func (s signature) hasAll(t signature) bool { return s[0]&t[0] == t[0] && s[1]&t[1] == t[1] }

// sieve finds sets of labels that a selector cannot choose, by their signatures alone.
type sieve struct {
	// all has the bits that a set must have.
	all signature
	// oneOf has lists of alternatives: from each list, a set must have all bits of at least one signature.
	oneOf [][]signature
}

// maxPairs bounds the values of a requirement that oneOf has signatures of. With more values, only the key is looked for.
const maxPairs = 8

// newSieve returns the sieve of a selector. Requirements that say nothing about the bits of a set let all sets pass.
func newSieve(selector labels.Selector) sieve {
	var s sieve
	requirements, selectable := selector.Requirements()
	if !selectable {
		return s
	}
	for _, r := range requirements {
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			s.all = s.all.union(keySignature(r.Key()))
			if len(r.Values()) > maxPairs {
				continue
			}
			var pairs []signature
			for value := range r.Values() {
				pairs = append(pairs, pairSignature(r.Key(), value))
			}
			if len(pairs) == 1 {
				s.all = s.all.union(pairs[0])
				continue
			}
			s.oneOf = append(s.oneOf, pairs)
		case selection.Exists, selection.GreaterThan, selection.LessThan:
			s.all = s.all.union(keySignature(r.Key()))
		default: // NotIn and the like also choose sets without the label, so no bit can be demanded
		}
	}
	return s
}

// mayPass reports whether a set of labels with this signature may be chosen.
func (s *sieve) mayPass(labels signature) bool {
	return labels.hasAll(s.all) && (len(s.oneOf) == 0 || s.passesOneOf(labels))
}

func (s *sieve) passesOneOf(labels signature) bool {
	for _, term := range s.oneOf {
		if !slices.ContainsFunc(term, labels.hasAll) {
			return false
		}
	}
	return true
}

// hashOf returns the FNV-1a hash, mixed as MurmurHash3 does at its end, so that its high bits are as good as its low ones.
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

// Mix combines two hashes.
func Mix(a, b uint64) uint64 {
	high, low := bits.Mul64(a^0x9e3779b97f4a7c15, b^0xbf58476d1ce4e5b9)
	return bits.RotateLeft64(a, 23) ^ high ^ low
}
