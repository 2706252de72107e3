package index

// PageLimit returns a limit for a page that begins with a key: as many objects as have maxBytes together, at least one
// and at most maxObjects. If all objects from there on fit, it is maxObjects, since the upstream may have more of them.
func (t Tree) PageLimit(from string, maxObjects, maxBytes int64) int64 {
	n, size := int64(0), int64(0)
	t.Ascend(from, "", func(o *Object) bool {
		size += int64(len(o.Bytes))
		if n > 0 && size > maxBytes {
			return false
		}
		n++
		return n < maxObjects
	})
	if size <= maxBytes {
		return maxObjects
	}
	return n
}
