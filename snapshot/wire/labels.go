package wire

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unique"

	"k8s.io/apimachinery/pkg/labels"
)

// Labels is a compact set of labels: one interned string, since the objects of one owner mostly have the same labels. Two
// sets that are equal by == have the same labels; for large sets, see [Labels.Equal]. The zero value is empty.
type Labels struct {
	// handle is the handle of the text "key\0value\0", sorted by key; zero for no labels.
	handle unique.Handle[string]
	// large is set instead if the set is too large to be searched from its beginning.
	large *largeSet
}

// largeSet is a set of labels that objects do not share. (Kubernetes does not bound the labels of an object.)
type largeSet struct {
	values map[string]string
	size   int
}

// ManyLabels is the number of labels at which a set counts as large.
const ManyLabels = 32

var _ labels.Labels = Labels{}

// MakeLabels returns the set of labels in pairs, which has keys and values in turn. It does not keep their memory.
func MakeLabels(pairs [][]byte) (Labels, error) {
	if len(pairs) == 0 {
		return Labels{}, nil
	}
	if len(pairs) >= 2*ManyLabels {
		return makeLargeSet(pairs)
	}
	n := 0
	for _, s := range pairs {
		if bytes.IndexByte(s, 0) >= 0 {
			return Labels{}, fmt.Errorf("%w: a label with a zero byte", errShape)
		}
		n += len(s) + 1
	}
	order := make([]int, 0, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		order = append(order, i)
	}
	slices.SortFunc(order, func(a, b int) int { return bytes.Compare(pairs[a], pairs[b]) })
	text := make([]byte, 0, n)
	for i, at := range order {
		if i > 0 && bytes.Equal(pairs[order[i-1]], pairs[at]) {
			return Labels{}, fmt.Errorf("%w: the label %q appears twice", errShape, pairs[at])
		}
		text = append(append(text, pairs[at]...), 0)
		text = append(append(text, pairs[at+1]...), 0)
	}
	return Labels{handle: unique.Make(string(text))}, nil
}

func makeLargeSet(pairs [][]byte) (Labels, error) {
	large := &largeSet{values: make(map[string]string, len(pairs)/2)}
	for i := 0; i < len(pairs); i += 2 {
		large.values[string(pairs[i])] = string(pairs[i+1])
		large.size += len(pairs[i]) + len(pairs[i+1]) + largeLabelOverhead
	}
	if len(large.values) != len(pairs)/2 {
		return Labels{}, fmt.Errorf("%w: a label appears twice", errShape)
	}
	return Labels{large: large}, nil
}

// MustLabels returns the set of labels in pairs, which has keys and values in turn and no key twice, for tests.
func MustLabels(pairs ...string) Labels {
	s, err := MakeLabels(asBytes(pairs))
	if err != nil {
		panic(err)
	}
	return s
}

func asBytes(texts []string) [][]byte {
	all := make([][]byte, len(texts))
	for i, text := range texts {
		all[i] = []byte(text)
	}
	return all
}

// largeLabelOverhead is the number of bytes that a label of a large set takes in addition to its text.
const largeLabelOverhead = 64

// Size returns the number of bytes of memory that the set takes; 0 if other objects probably share it.
func (s Labels) Size() int {
	if s.large != nil {
		return s.large.size
	}
	if s == (Labels{}) {
		return 0
	}
	if n := len(s.handle.Value()); n > sharedLabels {
		return n
	}
	return 0 // counted in index.ObjectOverhead
}

// Pairs returns the text "key\0value\0" of the labels, sorted by key. ok is false for a large set, which has none.
func (s Labels) Pairs() (text string, ok bool) {
	switch {
	case s.large != nil:
		return "", false
	case s == (Labels{}):
		return "", true
	}
	return s.handle.Value(), true
}

// Each calls yield with each label. For a large set it does not, and returns false.
func (s Labels) Each(yield func(key, value string)) bool {
	rest, ok := s.Pairs()
	for rest != "" {
		var key, value string
		key, rest, _ = strings.Cut(rest, "\x00")
		value, rest, _ = strings.Cut(rest, "\x00")
		yield(key, value)
	}
	return ok
}

// Equal reports whether both sets have the same labels. Unlike ==, it compares the labels of large sets, too.
func (s Labels) Equal(t Labels) bool {
	if s.large == nil || t.large == nil {
		return s == t
	}
	return maps.Equal(s.large.values, t.large.values)
}

// sharedLabels is the size, in bytes, up to which a set of labels is assumed to be shared between objects.
const sharedLabels = 256

// Lookup implements labels.Labels.
func (s Labels) Lookup(label string) (string, bool) {
	if s.large != nil {
		value, found := s.large.values[label]
		return value, found
	}
	if s == (Labels{}) {
		return "", false
	}
	for rest := s.handle.Value(); rest != ""; {
		var key, value string
		key, rest, _ = strings.Cut(rest, "\x00")
		value, rest, _ = strings.Cut(rest, "\x00")
		if key >= label {
			if key == label {
				return value, true
			}
			return "", false
		}
	}
	return "", false
}

// Has implements labels.Labels.
func (s Labels) Has(label string) bool {
	_, found := s.Lookup(label)
	return found
}

// Get implements labels.Labels.
func (s Labels) Get(label string) string {
	value, _ := s.Lookup(label)
	return value
}
