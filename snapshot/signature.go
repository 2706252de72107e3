package snapshot

import (
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// signature is a set of labels in 64 bits (a Bloom filter): each label sets some, and what lacks one
// of a label's bits does not have that label. A scan finds by it what need not be looked at.
type signature uint64

// everything has all bits, and so never says that a label is not there.
const everything = ^signature(0)

// signature of the labels of a set.
func (s labelSet) signature() signature {
	if s.large != nil {
		return everything
	}
	if s == (labelSet{}) {
		return 0
	}
	var all signature
	for rest := s.handle.Value(); rest != ""; {
		var key, value string
		key, rest, _ = strings.Cut(rest, "\x00")
		value, rest, _ = strings.Cut(rest, "\x00")
		all |= keySignature(key) | pairSignature(key, value)
	}
	return all
}

// keySignature is one bit for the key of a label.
func keySignature(key string) signature { return 1 << (hashOf(key) >> 26) }

// pairSignature are two bits for a label, or one.
func pairSignature(key, value string) signature {
	both := mix(uint64(hashOf(key)), uint64(hashOf(value)))
	return 1<<(both>>58) | 1<<(both>>52&63)
}

// sieve tells by signatures what a selector does not choose. Each of its terms are bits of which
// there must be all of at least one.
type sieve [][]signature

// maxPairs is up to how many values of a label are looked for one by one.
const maxPairs = 8

// newSieve returns what can be told of a selector.
func newSieve(selector labels.Selector) sieve {
	var s sieve
	requirements, selectable := selector.Requirements()
	if !selectable {
		return nil
	}
	for _, r := range requirements {
		key := keySignature(r.Key())
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			if len(r.Values()) > maxPairs {
				s = append(s, []signature{key})
				continue
			}
			var pairs []signature
			for value := range r.Values() {
				pairs = append(pairs, key|pairSignature(r.Key(), value))
			}
			s = append(s, pairs)
		case selection.Exists, selection.GreaterThan, selection.LessThan:
			s = append(s, []signature{key})
		default: // chooses what has not got something
		}
	}
	return s
}

// mayPass says whether what has this signature may be chosen.
func (s sieve) mayPass(of signature) bool {
	for _, term := range s {
		passes := false
		for _, bits := range term {
			if of&bits == bits {
				passes = true
				break
			}
		}
		if !passes {
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
