package index

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
)

// MaxDifferences is how many differing objects a comparison names.
const MaxDifferences = 5

// Differences names the objects with from <= key < end whose revision in the tree differs from
// theirs, the upstream's revisions by key.
func (t Tree) Differences(from, end string, theirs map[string]uint64) (found []string) {
	t.Ascend(from, end, func(o *Object) bool {
		if revision, there := theirs[o.Key]; !there {
			found = append(found, o.Key+" is not there upstream")
		} else if revision != o.Revision {
			found = append(found, fmt.Sprintf("%s is of revision %d, upstream of %d", o.Key, o.Revision, revision))
		}
		delete(theirs, o.Key)
		return len(found) < MaxDifferences
	})
	for _, key := range slices.Sorted(maps.Keys(theirs)) {
		found = append(found, key+" is missing")
	}
	return found[:min(len(found), MaxDifferences)]
}

// DifferentBytes names the objects of a page whose bytes differ from the upstream's.
func DifferentBytes(ours []*Object, theirs [][]byte) (found []string) {
	if len(ours) != len(theirs) {
		return []string{fmt.Sprintf("a page of %d objects has %d upstream", len(ours), len(theirs))}
	}
	for i, o := range ours {
		if !bytes.Equal(o.Bytes, theirs[i]) {
			found = append(found, o.Key+" has other bytes")
		}
	}
	if len(found) == 0 {
		return []string{"a list is written in another way"}
	}
	return found[:min(len(found), MaxDifferences)]
}

// PageLimit is a limit for a page from a key on: atMost objects, or as many as have about atMost
// bytes, and one at least.
func (t Tree) PageLimit(from string, atMost, atMostBytes int64) int64 {
	n, size := int64(0), int64(0)
	t.Ascend(from, "", func(o *Object) bool {
		size += int64(len(o.Bytes))
		if n > 0 && size > atMostBytes {
			return false
		}
		n++
		return n < atMost
	})
	if size <= atMostBytes {
		return atMost // also if there are fewer: the upstream may have more
	}
	return n
}
