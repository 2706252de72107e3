package proxy

import "math"

// The major types of CBOR (RFC 8949, 3.1) that are followed by more than their head.
const (
	cborBytes = 2
	cborText  = 3
	cborArray = 4
	cborMap   = 5
	cborTag   = 6
)

// cborItem follows one data item of CBOR to its end, as far as kube-apiserver writes them: with definite lengths
// (IndefLengthForbidden in k8s.io/apimachinery/pkg/runtime/serializer/cbor/internal/modes). The zero value is before
// the item.
type cborItem struct {
	begun bool
	items uint64 // heads that still come: the item's own, and those of what it holds

	// Of the head under way, if bytes of its argument still come.
	major    byte
	argument uint64
	lacks    int

	content uint64 // bytes of a string that still come
}

// next takes bytes of p, which is not empty, up to the end of the item. It returns how many, and whether the item is
// whole with them; the next byte then begins another. It is not ok if the end cannot be known.
func (c *cborItem) next(p []byte) (n int, whole, ok bool) {
	if !c.begun {
		c.begun, c.items = true, 1
	}
	for n < len(p) {
		if c.content > 0 {
			part := min(c.content, uint64(len(p)-n))
			c.content -= part
			n += int(part) //nolint:gosec // no more than len(p)
		} else {
			if !c.takeHead(p[n]) {
				return n, false, false
			}
			n++
		}
		if c.content == 0 && c.lacks == 0 && c.items == 0 {
			*c = cborItem{}
			return n, true, true
		}
	}
	return n, false, true
}

// takeHead takes a byte of a head, and says whether it is one that can be followed.
func (c *cborItem) takeHead(b byte) bool {
	if c.lacks > 0 {
		c.argument = c.argument<<8 | uint64(b)
		c.lacks--
	} else {
		c.items--
		c.major = b >> 5
		switch short := b & 0x1f; {
		case short < 24:
			c.argument = uint64(short)
		case short < 28:
			c.argument, c.lacks = 0, 1<<(short-24)
		default: // 31 is an indefinite length, the others mean nothing
			return false
		}
	}
	if c.lacks > 0 {
		return true
	}
	switch c.major {
	case cborBytes, cborText:
		c.content = c.argument
	case cborArray, cborMap:
		if c.argument > math.MaxInt32 { // not so many that they could not be counted
			return false
		}
		c.items += c.argument
		if c.major == cborMap {
			c.items += c.argument
		}
	case cborTag:
		c.items++
	}
	return true
}
