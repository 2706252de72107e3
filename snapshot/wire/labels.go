package wire

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unique"

	"k8s.io/apimachinery/pkg/labels"
)

// Labels is a set of labels, kept in one interned string, since many objects have the same labels. Two sets with the same
// labels are equal (==). The zero value is the empty set.
type Labels struct {
	// handle is the handle of text; zero for no labels.
	handle unique.Handle[string]
}

var _ labels.Labels = Labels{}

// MakeLabels returns a set of labels. pairs has key, value, key, value and so on, so its length is even; its memory is not kept. A key
// that appears twice is an error.
func MakeLabels(pairs [][]byte) (Labels, error) {
	if len(pairs) == 0 {
		return Labels{}, nil
	}
	size := 0
	for _, s := range pairs {
		if bytes.IndexByte(s, 0) >= 0 {
			return Labels{}, fmt.Errorf("%w: a label with a zero byte", errShape)
		}
		size += len(s) + 1
	}

	order := make([]int, 0, len(pairs)/2) // The indexes of the keys in pairs, sorted by key.
	for i := 0; i < len(pairs); i += 2 {
		order = append(order, i)
	}
	slices.SortFunc(order, func(a, b int) int { return bytes.Compare(pairs[a], pairs[b]) })

	text := make([]byte, 0, size)
	for i, at := range order {
		key, value := pairs[at], pairs[at+1]
		if i > 0 && bytes.Equal(key, pairs[order[i-1]]) {
			return Labels{}, fmt.Errorf("%w: the label %q appears twice", errShape, key)
		}
		text = append(append(text, key...), 0)
		text = append(append(text, value...), 0)
	}
	return Labels{handle: unique.Make(string(text))}, nil
}

// maxSharedLabels is a size in bytes. A set of labels up to this size is assumed to be shared with other objects.
const maxSharedLabels = 256

// UnsharedSize returns the number of bytes of memory that the set takes, or 0 if other objects probably share it.
func (s Labels) UnsharedSize() int {
	if n := len(s.text()); n > maxSharedLabels {
		return n
	}
	return 0 // index.ObjectOverhead has an allowance for shared sets
}

// text returns "key\0value\0" for each label, sorted by key.
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
