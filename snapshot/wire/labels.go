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

// MakeLabels returns a set of labels. Each pair has a key and a value. It sorts the pairs, and does not keep their memory. A key
// that appears twice is an error.
func MakeLabels(pairs [][2][]byte) (Labels, error) {
	if len(pairs) == 0 {
		return Labels{}, nil
	}
	slices.SortFunc(pairs, func(a, b [2][]byte) int { return bytes.Compare(a[0], b[0]) })
	var scratch [maxSharedLabels]byte
	text := scratch[:0]
	for i, pair := range pairs {
		key, value := pair[0], pair[1]
		if i > 0 && bytes.Equal(key, pairs[i-1][0]) { // #nosec G602 -- i is greater than 0
			return Labels{}, fmt.Errorf("%w: the label %q appears twice", errShape, key)
		}
		text = append(append(text, key...), 0)
		text = append(append(text, value...), 0)
	}
	if bytes.Count(text, []byte{0}) != 2*len(pairs) {
		return Labels{}, fmt.Errorf("%w: a label with a zero byte", errShape)
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
