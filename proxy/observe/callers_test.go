package observe

import (
	"fmt"
	"sync"
	"testing"

	"github.com/listproxy/listproxy/telemetry/statusz"
)

func TestCallers(t *testing.T) {
	var c callers
	for range 3 {
		c.count("kubectl/v1 (linux)", "most-recent")
	}
	c.count("kubectl/v1 (darwin)", "representation")
	c.count("Bearer s3cr3t-T0ken._~+/x==", "selector")
	s := statusz.Status{Callers: c.status()}
	s.Sort()
	want := []statusz.Caller{{UserAgent: "kubectl/v1", Lists: 4, Reason: "most-recent"}, {UserAgent: "Bearer", Lists: 1, Reason: "selector"}}
	if fmt.Sprint(s.Callers) != fmt.Sprint(want) {
		t.Errorf("got %+v, want %+v", s.Callers, want)
	}
}

// However many names there are, memory is bounded, and who sends much is there with about the
// right count. At the same time somebody reads.
func TestCallersAreBounded(t *testing.T) {
	var c callers
	const each, others = 500, 2000
	var all sync.WaitGroup
	all.Go(func() {
		for range each {
			c.count("often/1", "most-recent")
		}
	})
	all.Go(func() {
		for i := range others {
			c.count(fmt.Sprintf("seldom-%d/1", i), "selector")
		}
	})
	all.Go(func() {
		for range 100 {
			c.status()
		}
	})
	all.Wait()
	status := c.status()
	if len(status) > maxCallers || len(c.names) > maxCallerNames {
		t.Errorf("%d callers, %d names are kept", len(status), len(c.names))
	}
	sum, often := int64(0), statusz.Caller{}
	for _, s := range status {
		sum += s.Lists
		if s.UserAgent == "often/1" {
			often = s
		}
	}
	if sum != each+others {
		t.Errorf("%d lists are counted, of %d", sum, each+others)
	}
	if often.Lists < each || often.Lists-often.Excess > each || often.Excess > sum/maxCallers {
		t.Errorf("the one who sent %d: %+v", each, often)
	}
}
