package index

import "fmt"

// MaxDifferences is how many differing objects a check names.
const MaxDifferences = 5

// Check compares at most atMost objects, from a key on, with the indexes of t, and checks the
// counts. It names what differs, and returns where to go on.
func (t Tree) Check(from string, atMost int) (next string, found []string) {
	total := t.Len()
	// An entry of an index that is not an object (any more) shows in the number of entries.
	if n := t.labels.len(); n != total {
		found = append(found, fmt.Sprintf("%d objects have %d entries in the index of labels", total, n))
	}
	if t.nodes != nil && t.nodes.Len() != total {
		found = append(found, fmt.Sprintf("%d objects have %d entries in the index of a field", total, t.nodes.Len()))
	}
	if n := t.Count("", ""); n != int64(total) {
		found = append(found, fmt.Sprintf("%d objects are counted as %d", total, n))
	}
	seen := 0
	t.Ascend(from, "", func(o *Object) bool {
		if seen++; seen > atMost || len(found) >= MaxDifferences {
			next = o.Key
			return false
		}
		if !t.labels.has(o.Key, o.Labels) {
			found = append(found, o.Key+" has other labels in the index")
		}
		if t.nodes != nil && !t.nodes.Has(o.nodeKey()) {
			found = append(found, o.Key+" has another value in the index of a field")
		}
		return true
	})
	return next, found
}
