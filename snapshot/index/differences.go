package index

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
)

// MaxDifferences is the number of differing objects that a comparison names.
const MaxDifferences = 5

// Differences describes the objects with from <= key < end whose revision in the tree differs from the one in theirs,
// which has the upstream's revisions by key. It changes theirs.
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

// DifferentBytes describes the objects of a page whose bytes differ from the upstream's. The pages must differ
// somewhere.
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

// PageLimit returns a limit for a page that begins with a key: atMost objects, or as many as have about atMostBytes,
// but at least one.
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
		return atMost // even if the tree has fewer objects: the upstream may have more
	}
	return n
}
