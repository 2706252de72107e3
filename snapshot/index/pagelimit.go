package index

// PageLimit returns the limit for a page that begins with the key start: the number of objects that fit into maxBytes, but at
// least 1 and at most maxObjects. If all objects from start on fit, it returns maxObjects, since the upstream may have more.
func (t Tree) PageLimit(start string, maxObjects, maxBytes int64) int64 {
	n, size := int64(0), int64(0)
	t.Ascend(start, "", func(o *Object) bool {
		size += int64(len(o.Bytes))
		if n > 0 && size > maxBytes {
			return false
		}
		n++
		return n < maxObjects
	})
	if size <= maxBytes { // All objects from start on fit, or the first maxObjects do.
		return maxObjects
	}
	return n
}
