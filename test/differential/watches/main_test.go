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
