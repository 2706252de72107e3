package differential_test

import (
	"flag"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/differential"
	"github.com/listproxy/listproxy/test/differential/cluster"
	"github.com/listproxy/listproxy/test/harness"
)

// patience ends the wait for something that must come.
const patience = 5 * time.Minute

var (
	shared      = differential.NewSuite("differential", 15*time.Second)
	comparisons = flag.Int("differential.comparisons", 0, "how many comparisons are made under churn, however long they take; 0: as many as come in -differential.duration")
)

func TestMain(m *testing.M) {
	harness.Main(m, harness.Options{SetUp: func(s *harness.Suite) error { return shared.SetUp(s) }})
}

// finish prints a report and demands that nothing differs.
func finish(t *testing.T, report *differential.Report) {
	t.Helper()
	t.Log(report)
	if len(report.Kinds()) > 0 {
		t.Error("there are differences")
	}
}

// resource returns a resource of the cluster.
func resource(t *testing.T, name string) cluster.Resource {
	t.Helper()
	for _, r := range shared.Resources {
		if r.Resource == name {
			return r
		}
	}
	t.Fatalf("no resource %q", name)
	return cluster.Resource{}
}
