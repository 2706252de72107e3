package upstream

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"reflect"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// Run reloads the files of the client configuration until ctx ends.
func (t *Transports) Run(ctx context.Context, log *slog.Logger) {
	const subject = "a new CA or client certificate for kube-apiserver"
	kubehttp.ReloadFiles(ctx, log, subject, func(context.Context) (bool, error) { return t.reload() })
}

// reload reads the files of the client configuration. If their content has changed, or at the first call, it makes new
// transports.
func (t *Transports) reload() (changed bool, err error) {
	loaded, err := loadFiles(t.cfg)
	if err != nil {
		return false, err
	}
	previous := t.current.Load()
	if previous != nil && reflect.DeepEqual(previous.config.TLSClientConfig, loaded.TLSClientConfig) {
		return false, nil
	}
	next, err := newGeneration(loaded, t.base, t.impersonates)
	if err != nil {
		return false, err
	}
	t.current.Store(next)
	if previous != nil {
		previous.closeIdle()
	}
	return true, nil
}

// loadFiles returns a copy of cfg with the content of its TLS files in place of their names. An empty file is an error:
// somebody may be writing it, and with an empty CA the system's roots would be trusted.
func loadFiles(cfg *rest.Config) (*rest.Config, error) {
	cfg = rest.CopyConfig(cfg)
	if err := rest.LoadTLSFiles(cfg); err != nil {
		return nil, err
	}
	err := cmp.Or(
		checkContent(cfg.CAFile, cfg.CAData), checkContent(cfg.CertFile, cfg.CertData), checkContent(cfg.KeyFile, cfg.KeyData))
	if err != nil {
		return nil, err
	}
	// Without the names, client-go does not read the files again.
	cfg.CAFile = ""
	cfg.CertFile = ""
	cfg.KeyFile = ""
	return cfg, nil
}

// checkContent returns an error if a file is empty. Without a file there is nothing to check.
func checkContent(file string, content []byte) error {
	if file != "" && len(content) == 0 {
		return fmt.Errorf("%s is empty", file)
	}
	return nil
}
