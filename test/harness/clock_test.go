package harness

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// TestJumpingNow: this version of Go reads the wall clock where the offset is put, and a version
// that does not is noticed.
func TestJumpingNow(t *testing.T) {
	goroot, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	expect.NoError(t, err)
	b, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(goroot)), "src", "time", "time.go"))
	expect.NoError(t, err)
	standard := string(b)
	got, err := jumpingNow(b)
	expect.NoError(t, err)
	const added = "\tsec += wallOffset.Load()\n"
	if without := strings.Replace(string(got), added, "", 1); len(got) != len(b)+len(added) || without != standard {
		t.Error("more has changed than the one line")
	}
	now := "\nfunc Now() Time {\n"
	for name, other := range map[string]string{
		"no Now":                   strings.Replace(standard, now, "\nfunc Present() Time {\n", 1),
		"another clock":            strings.ReplaceAll(standard, "runtimeNow()", "now()"),
		"the clock is read twice":  standard + "\nfunc Later() { sec, nsec, mono := runtimeNow() }\n",
		"something else before it": strings.Replace(standard, now, now+"\tsomething()\n", 1),
	} {
		if _, err := jumpingNow([]byte(other)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
