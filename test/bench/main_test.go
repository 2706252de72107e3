package bench

import (
	"os"
	"testing"

	"github.com/listproxy/listproxy/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Verdict(m.Run())) }
