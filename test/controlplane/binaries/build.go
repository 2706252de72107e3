package binaries

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// build builds one tool into bin, in the directory of the module that pins it. It writes the program under another name, and
// then renames it. So an interrupted build leaves no half-written program, and a running program is not disturbed.
func build(ctx context.Context, log func(string), module, bin string, t tool) error {
	version, err := goCommand(ctx, module, false, "list", "-m", "-f", "{{.Version}}", t.module)
	if err != nil {
		return fmt.Errorf("read the version of %s from %s/go.mod: %w", t.module, module, err)
	}
	version = strings.TrimSpace(version)
	task := fmt.Sprintf("building %s %s", t.name, version)

	log(task + " …")
	partial := filepath.Join(bin, "."+t.name+".partial")
	verb := []string{"build"}
	if t.test {
		verb = []string{"test", "-c"}
	}
	args := slices.Concat(verb, []string{"-tags", t.tags}, buildFlags(version, partial), []string{t.pkg})
	if _, err := goCommand(ctx, module, t.cgo, args...); err != nil {
		_ = os.Remove(partial)
		return fmt.Errorf("%s: %w", task, err)
	}
	if err := os.Rename(partial, filepath.Join(bin, t.name)); err != nil {
		return fmt.Errorf("%s: %w", task, err)
	}
	return nil
}

// buildFlags returns arguments of go build. They set the version of Kubernetes in the program, as its own build scripts do. The
// program derives discovery, /version and compatibility versions from it.
func buildFlags(version, output string) []string {
	const pkg = "k8s.io/component-base/version"
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	ldflags := strings.Join([]string{
		"-s", "-w",
		"-X", pkg + ".gitVersion=" + version,
		"-X", pkg + ".gitMajor=" + major,
		"-X", pkg + ".gitMinor=" + minor,
		"-X", pkg + ".gitTreeState=clean",
	}, " ")
	return []string{"-trimpath", "-ldflags", ldflags, "-o", output}
}

// goCommand runs the go command in the directory module, with cgo or without, and returns its standard output.
func goCommand(ctx context.Context, module string, cgo bool, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...) // #nosec G204 -- arguments from this package
	cmd.Dir = module
	cgoEnabled := "CGO_ENABLED=0"
	if cgo {
		cgoEnabled = "CGO_ENABLED=1"
	}
	cmd.Env = append(os.Environ(), cgoEnabled, "GOWORK=off", "GOFLAGS=")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return "", fmt.Errorf("go %s: %w\n%s", args[0], err, Tail(stderr.Bytes()))
	}
	return stdout.String(), nil
}

// tailBytes is the maximum length of a program's output in an error.
const tailBytes = 4 << 10

// Tail returns the end of a program's output.
func Tail(b []byte) string {
	if len(b) > tailBytes {
		b = b[len(b)-tailBytes:]
		if _, after, ok := bytes.Cut(b, []byte("\n")); ok {
			b = after
		}
	}
	return string(bytes.TrimSpace(b))
}
