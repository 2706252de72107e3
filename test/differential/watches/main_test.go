package watches

import (
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/differential"
	"github.com/listproxy/listproxy/test/harness"
)

// patience ends the wait for something that must come.
const patience = time.Minute

var shared = differential.NewSuite("watches", 10*time.Second)

func TestMain(m *testing.M) {
	harness.Main(m, harness.Options{SetUp: func(s *harness.Suite) error { return shared.SetUp(s, "--watches") }})
}

// churn changes objects, and makes and deletes many of them, until the test ends.
func churn(t *testing.T, perSecond int) {
	t.Helper()
	shared.ChangeUntilEnd(t, perSecond, shared.Turnover)
}
