package release

import (
	"testing"

	"github.com/listproxy/listproxy/test/controlplane/binaries"
	"github.com/listproxy/listproxy/test/harness"
)

// tools has the path of each program that the tests run, by its name: those that make a release, and krew. TestMain fills it.
var tools = map[string]string{"helm": "", "cyclonedx-gomod": "", "release-image": "", "krew": ""}

func TestMain(m *testing.M) {
	harness.Main(m, harness.Options{SetUp: func(s *harness.Suite) (err error) {
		for name := range tools {
			if tools[name], err = binaries.Tool(s.Context(), harness.Log, name); err != nil {
				return err
			}
		}
		return nil
	}})
}
