package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/secrets"
)

// adminPaths are all paths that the admin port may have. A test holds them against the source.
var adminPaths = []string{
	"/", "/livez", "/readyz", "/readyz?verbose", "/metrics", "/statusz", "/statusz?format=json", "/flagz", "/debug/pprof/",
}

// adminPatience bounds the questions to the admin port of a process that is about to end. One that
// hangs answers nothing.
const adminPatience = 15 * time.Second

// processes are those that this test process has started. What was found in one that was killed
// has nobody to be returned to; [Verdict] tells.
var processes struct {
	sync.Mutex
	running map[*Proxy]bool
	found   []error
}

// Verdict is for the end of every program that runs listproxy: os.Exit(harness.Verdict(code));
// [Main] does that for tests. It ends what was left running, and makes the code 1 if that was so,
// or if any process ever emitted a secret.
func Verdict(code int) int { return verdict(code, os.Stderr) }

func verdict(code int, out io.Writer) int {
	complain := func(err error) {
		_, _ = fmt.Fprintln(out, "--- FAIL:", err)
		code = max(code, 1)
	}
	processes.Lock()
	var left []*Proxy
	for p := range processes.running {
		left = append(left, p)
	}
	processes.Unlock()
	for _, p := range left {
		p.Kill()
		complain(fmt.Errorf("listproxy, process %d, was neither stopped nor killed", p.PID()))
	}
	processes.Lock()
	defer processes.Unlock()
	for _, err := range processes.found {
		complain(err)
	}
	return code
}

// begun notes that the process runs, and what it and its clients know and it must not emit.
func (p *Proxy) begun(upstream *rest.Config) {
	addClient("listproxy's own", upstream)
	processes.Lock()
	defer processes.Unlock()
	if processes.running == nil {
		processes.running = map[*Proxy]bool{}
	}
	processes.running[p] = true
}

// addClient adds the secrets of a client's configuration.
func addClient(whose string, cfg *rest.Config) {
	secrets.Suite.Add(whose+" token", cfg.BearerToken)
	secrets.Suite.Add(whose+" password", cfg.Password)
	secrets.Suite.AddKey(whose+" key", cfg.KeyData)
}

// collect keeps what the admin port answers, as long as somebody does.
func (p *Proxy) collect() {
	p.ending.Store(true)
	if p.admin == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), adminPatience)
	defer cancel()
	for _, path := range adminPaths {
		a, err := ask.At(p.AdminURL()).Get(ctx, path)
		if err != nil {
			return // it hangs, or has ended
		}
		p.answers = append(p.answers, emission{"the admin port's answer to " + path, fmt.Sprintf("%v\n%s", a.Header, a.Body)})
	}
}

// emission is something that a process has emitted.
type emission struct{ where, text string }

// search looks for secrets in all that the process has emitted, once it has ended, and removes its
// files, the keys that it made itself among them.
func (p *Proxy) search() error {
	p.searched.Do(func() {
		p.leaked = p.searchFiles()
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
			processes.found = append(processes.found, p.leaked)
		}
	})
	return p.leaked
}

// searchFiles adds the keys that the process has made to what it must not have emitted. Nobody but
// its owner may read them.
func (p *Proxy) searchFiles() error {
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
		if mode := info.Mode().Perm(); mode&0o077 != 0 {
			return fmt.Errorf("%s holds a private key and has mode %v", filepath.Base(file), mode)
		}
	}
	return nil
}
