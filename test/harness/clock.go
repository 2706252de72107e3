package harness

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// jump is by how much [Proxy.JumpClock] moves a wall clock.
const jump = time.Hour

// What is built into a listproxy whose wall clock can jump, beside its own sources.
var (
	//go:embed testdata/clock/time.go.txt
	clockInTime []byte // of package time
	//go:embed testdata/clock/main.go.txt
	clockInMain []byte // of cmd/listproxy
)

var buildJumping once

// BuildJumpingProxy compiles a listproxy, with the race detector, whose wall clock can be made to
// jump, once in a process, and returns its path in bin/. It has a package time of its own: the
// standard one, with an offset added to the wall clock, and only to that; timers and the monotonic
// clock go on. So the whole program is compiled, which takes minutes the first time.
func BuildJumpingProxy(ctx context.Context) (string, error) {
	return buildJumping.do(func() (string, error) {
		root, err := ModuleDir(ctx)
		if err != nil {
			return "", err
		}
		out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
		if err != nil {
			return "", fmt.Errorf("finding the standard library: %w", err)
		}
		overlay, err := writeOverlay(filepath.Join(root, "bin", ".listproxy-jumping.overlay"), root, strings.TrimSpace(string(out)))
		if err != nil {
			return "", err
		}
		return compile(ctx, "listproxy-jumping", "-race", "-overlay", overlay)
	})
}

// writeOverlay writes the sources that are other than those on disk into dir, and returns the file
// that says so to go build.
func writeOverlay(dir, root, goroot string) (string, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", err
	}
	inTime := filepath.Join(goroot, "src", "time")
	standard, err := os.ReadFile(filepath.Join(inTime, "time.go")) // #nosec G304 -- of the Go that tests run with
	if err != nil {
		return "", err
	}
	jumping, err := jumpingNow(standard)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for _, f := range []struct {
		name, of string
		source   []byte
	}{
		{"time.go", filepath.Join(inTime, "time.go"), jumping},
		{"time_jump.go", filepath.Join(inTime, "jump_wall.go"), clockInTime},
		{"main_jump.go", filepath.Join(root, "cmd", "listproxy", "jump_wall.go"), clockInMain},
	} {
		path := filepath.Join(dir, f.name)
		if err := os.WriteFile(path, f.source, 0o600); err != nil {
			return "", err
		}
		replace[f.of] = path
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, overlay, 0o600)
}

// jumpingNow returns the source of package time's time.go with the offset in Now, the one place
// where that package asks for the wall clock (but for which of a zone's rules is the present one).
func jumpingNow(standard []byte) ([]byte, error) {
	const (
		now   = "\nfunc Now() Time {\n"
		reads = "\tsec, nsec, mono := runtimeNow()\n"
	)
	if n, m := bytes.Count(standard, []byte(now+reads)), bytes.Count(standard, []byte("= runtimeNow()")); n != 1 || m != 1 {
		return nil, fmt.Errorf("package time's time.go is not as test/harness knows it: Now begins %d times by reading the clock, which is read %d times; "+
			"once each is what jumpingNow can change: look where this version of Go reads the wall clock, and change jumpingNow", n, m)
	}
	return bytes.Replace(standard, []byte(now+reads), []byte(now+reads+"\tsec += wallOffset.Load()\n"), 1), nil
}

// JumpClock makes the wall clock of a listproxy of [BuildJumpingProxy] jump by an hour, forward or
// back, and returns when it has.
func (p *Proxy) JumpClock(ctx context.Context, forward bool) error {
	sig, by := syscall.SIGUSR1, -jump
	if forward {
		sig, by = syscall.SIGUSR2, jump
	}
	said := fmt.Sprintf("the wall clock has jumped by %v\n", by)
	before := strings.Count(p.Log(), said)
	if err := p.Signal(sig); err != nil {
		return err
	}
	for strings.Count(p.Log(), said) == before {
		if err := p.pause(ctx); err != nil {
			return errors.Join(errors.New("the wall clock has not jumped"), err)
		}
	}
	return nil
}
