package bench

import (
	"os"
	"testing"

	"github.com/listproxy/listproxy/test/proxyrun"
)

func TestMain(m *testing.M) { os.Exit(proxyrun.Verdict(m.Run())) }
