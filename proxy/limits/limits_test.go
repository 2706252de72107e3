package limits

import (
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// TestBodiesLeaveRoom: callers whose bodies do not come keep no large answer from anybody else.
func TestBodiesLeaveRoom(t *testing.T) {
	const all = 128 << 20
	l, err := New(Config{Bytes: all})
	expect.NoError(t, err)
	kept := int64(0)
	for of := range byte(3) {
		for size, ok := int64(3<<20), true; ok; kept += size {
			if _, ok = l.Body(Flow{of}, size); !ok {
				break
			}
		}
	}
	if kept < all/4 || kept > all/2 {
		t.Errorf("bodies of %d of %d bytes are kept", kept, all)
	}
	if _, err := l.Answer(t.Context(), Flow{9}, all/2); err != nil {
		t.Errorf("an answer of half of all bytes: %v", err)
	}
}
