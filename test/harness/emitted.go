package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/secrets"
)

// adminPaths are the paths of the admin port (package admin) whose answers are searched.
var adminPaths = []string{
	"/", "/livez", "/readyz", "/readyz?verbose", "/metrics", "/statusz", "/statusz?format=json", "/flagz", "/debug/pprof/",
}

// adminPatience bounds the requests that read the admin port of a process before its end. A process that hangs does not answer.
const adminPatience = 15 * time.Second

// processes has the listproxies that this process has started and not ended yet.
var processes struct {
	sync.Mutex
	running map[*Proxy]bool
	leaks   []error // emitted secrets, for [KillRunning]
}

// KillRunning kills the listproxies that were left running, and returns the exit code for this process: code, but at least 1 if
// any was left running or has ever emitted a secret. [Main] calls it for tests.
func KillRunning(code int) (exitCode int) { return killRunning(code, os.Stderr) }

// killRunning is [KillRunning], and writes its complaints to out.
func killRunning(code int, out io.Writer) int {
	complain := func(err error) {
		_, _ = fmt.Fprintln(out, "--- FAIL:", err)
		code = max(code, 1)
	}
	processes.Lock()
	running := slices.Collect(maps.Keys(processes.running))
	processes.Unlock()
	for _, p := range running {
		p.Kill()
		complain(fmt.Errorf("listproxy, process %d, was neither stopped nor killed", p.PID()))
	}
	processes.Lock()
	defer processes.Unlock()
	for _, err := range processes.leaks {
		complain(err)
	}
	return code
}

// register adds the process to those running, and its credentials to the secrets that no listproxy may emit ([secrets.Suite]).
func (p *Proxy) register(upstream *rest.Config) {
	addClient("listproxy's own", upstream)
	processes.Lock()
	defer processes.Unlock()
	if processes.running == nil {
		processes.running = map[*Proxy]bool{}
	}
	processes.running[p] = true
}

// addClient adds the credentials of a configuration to the secrets.
func addClient(whose string, cfg *rest.Config) {
	secrets.Suite.Add(whose+" token", cfg.BearerToken)
	secrets.Suite.Add(whose+" password", cfg.Password)
	secrets.Suite.AddKey(whose+" key", cfg.KeyData)
}

// collectAnswers keeps the answers of the admin port, so that they can be searched.
func (p *Proxy) collectAnswers() {
	if p.admin == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), adminPatience)
	defer cancel()
	for _, path := range adminPaths {
		a, err := ask.At(p.AdminURL()).Get(ctx, path)
		if err != nil {
			return // the process hangs, or has ended
		}
		p.answers = append(p.answers, emission{"the admin port's answer to " + path, fmt.Sprintf("%v\n%s", a.Header, a.Body)})
	}
}

// emission is a text that a process has emitted. where names it in errors.
type emission struct{ where, text string }

// searchSecrets searches what the process has emitted, and returns an error if there is a secret in it. The process has ended.
// Its files are removed. A later call returns the same error.
func (p *Proxy) searchSecrets() error {
	p.searched.Do(func() {
		p.leaked = p.addKeys()
		for _, e := range append(p.answers, emission{"its output", p.Log()}) {
			for _, leak := range secrets.Suite.Search(e.where, e.text) {
				p.leaked = errors.Join(p.leaked, leak)
			}
		}
		if p.leaked != nil {
			p.leaked = fmt.Errorf("listproxy, process %d, does not keep secrets: %w", p.PID(), p.leaked)
		}
		_ = os.RemoveAll(p.dir)
		processes.Lock()
		defer processes.Unlock()
		delete(processes.running, p)
		if p.leaked != nil {
			processes.leaks = append(processes.leaks, p.leaked)
		}
	})
	return p.leaked
}

// addKeys adds the private keys in the files of the process to the secrets. It returns an error if others than the owner may
// read such a file.
func (p *Proxy) addKeys() error {
	files, err := filepath.Glob(filepath.Join(p.dir, "*"))
	if err != nil {
		return err
	}
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil || info.IsDir() {
			continue
		}
		content, err := os.ReadFile(file) // #nosec G304 -- made by the program under test
		if err != nil {
			return err
		}
		if !strings.Contains(string(content), "PRIVATE KEY-----") {
			continue
		}
		secrets.Suite.AddKey("the key in "+filepath.Base(file), content)
		const othersMask = 0o077
		if mode := info.Mode().Perm(); mode&othersMask != 0 {
			return fmt.Errorf("%s holds a private key and has mode %v", filepath.Base(file), mode)
		}
	}
	return nil
}
