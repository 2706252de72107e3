package harness

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// root is the module's directory.
const root = "../.."

// TestAdminPathsAreKnown: adminPaths has every path that the source of the admin port registers.
func TestAdminPathsAreKnown(t *testing.T) {
	source, err := os.ReadFile(filepath.Join(root, "proxy/admin/port.go"))
	expect.NoError(t, err)
	found := regexp.MustCompile(`\.Handle(?:Func)?\("(?:GET )?(/[^"{]*)`).FindAllSubmatch(source, -1)
	if len(found) < 8 {
		t.Errorf("found only the paths %q: the expression does not fit the source", found)
	}
	for _, m := range found {
		if path := string(m[1]); !slices.Contains(adminPaths, path) {
			t.Errorf("%s is missing in adminPaths", path)
		}
	}
}
