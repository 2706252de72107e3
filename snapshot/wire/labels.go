package wire

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unique"
)

// Labels is a set of labels. Many objects have the same labels, so equal sets share their memory (package unique). Sets with
// the same labels are equal (==). The zero value is the empty set.
type Labels struct {
	// handle stands for "key\x00value\x00" of each label, sorted by key. It is zero for the empty set.
	handle unique.Handle[string]
}

// maxSharedSize is the size in bytes up to which a set of labels is assumed to be shared with other objects.
const maxSharedSize = 256

// MakeLabels returns a set of labels. Each pair is a key and a value. MakeLabels sorts the pairs, and does not keep their
// memory. It refuses a key that appears twice, and a zero byte.
func MakeLabels(pairs [][2][]byte) (Labels, error) {
	if len(pairs) == 0 {
		return Labels{}, nil
	}
	slices.SortFunc(pairs, func(a, b [2][]byte) int { return bytes.Compare(a[0], b[0]) })
	var scratch [maxSharedSize]byte // enough for most sets
	text := scratch[:0]
	for i, pair := range pairs {
		key, value := pair[0], pair[1]
		if i > 0 && bytes.Equal(key, pairs[i-1][0]) { // #nosec G602 -- i is greater than 0
			return Labels{}, fmt.Errorf("%w: the label %q appears twice", errMalformed, key)
		}
		text = append(append(text, key...), 0)
		text = append(append(text, value...), 0)
	}
	if bytes.Count(text, []byte{0}) != 2*len(pairs) {
		return Labels{}, fmt.Errorf("%w: a label with a zero byte", errMalformed)
	}
	return Labels{handle: unique.Make(string(text))}, nil
}

// UnsharedSize returns the number of bytes of memory that the set takes, or 0 if other objects probably share it.
func (s Labels) UnsharedSize() int {
	if size := len(s.text()); size > maxSharedSize {
		return size
	}
	return 0 // index.ObjectOverhead has an allowance for shared sets
}

// text returns the text that handle stands for.
func (s Labels) text() string {
	if s == (Labels{}) {
		return ""
	}
	return s.handle.Value()
}

// All is an iterator over the labels, sorted by key.
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
