package authz

import (
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/expect"
)

// TestEvictionsAreCounted: of what had to go before its time, and of nothing else.
func TestEvictionsAreCounted(t *testing.T) {
	const size, all = 8, 100
	c, err := newExpiringCache[int](size)
	expect.NoError(t, err)
	defer c.close()
	now := time.Now()
	for i := range all {
		c.add(string(rune('a'+i)), i, 1, validity{now, time.Hour}, now)
		c.entries.Wait()
	}
	if used, evicted := c.stats(); used != size || evicted != all-size {
		t.Errorf("%d are used, %d were evicted", used, evicted)
	}
	c.close()
	if used, _ := c.stats(); used != 0 {
		t.Errorf("%d are used when it is closed", used)
	}
}
