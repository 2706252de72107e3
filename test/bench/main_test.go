package bench

import (
	"testing"

	"github.com/listproxy/listproxy/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m, harness.Options{}) }
