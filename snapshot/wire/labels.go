package wire

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unique"

	"k8s.io/apimachinery/pkg/labels"
)

// Labels is a compact set of labels: one interned string, since the objects of one owner mostly have the same labels.
// Two sets are equal if they have the same labels. The zero value is empty.
type Labels struct {
	// handle is the handle of the text "key\0value\0", sorted by key; zero for no labels.
	handle unique.Handle[string]
}

var _ labels.Labels = Labels{}

// MakeLabels returns the set of labels in pairs, which has keys and values in turn. It does not keep their memory.
func MakeLabels(pairs [][]byte) (Labels, error) {
	if len(pairs) == 0 {
		return Labels{}, nil
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

// sharedLabels is the size, in bytes, up to which a set of labels is assumed to be shared between objects.
const sharedLabels = 256

// Size returns the number of bytes of memory that the set takes; 0 if other objects probably share it.
func (s Labels) Size() int {
	if n := len(s.text()); n > sharedLabels {
		return n
	}
	return 0 // counted in index.ObjectOverhead
}

// text returns the text "key\0value\0" of the labels, sorted by key.
func (s Labels) text() string {
	if s == (Labels{}) {
		return ""
	}
	return s.handle.Value()
}

// All calls yield with each label, sorted by key, until it returns false.
func (s Labels) All(yield func(key, value string) bool) {
	for rest := s.text(); rest != ""; {
		var key, value string
		key, rest, _ = strings.Cut(rest, "\x00")
		value, rest, _ = strings.Cut(rest, "\x00")
		if !yield(key, value) {
			return
		}
	}
}

// Lookup implements labels.Labels.
func (s Labels) Lookup(label string) (value string, found bool) {
	for key, value := range s.All {
		if key == label {
			return value, true
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
