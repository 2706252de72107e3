package index

// PageLimit returns a limit for a page that begins with the key start: the number of objects that have maxBytes together,
// but at least one and at most maxObjects. If all objects that follow fit, the limit is maxObjects, since the upstream may
// have more of them.
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
	if size <= maxBytes { // of all objects, or of maxObjects
		return maxObjects
	}
	return n
}
