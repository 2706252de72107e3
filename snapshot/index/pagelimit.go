package index

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
