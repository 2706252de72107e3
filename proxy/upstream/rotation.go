package upstream

import (
	"context"
	"errors"
	"log/slog"
	"reflect"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// Run reloads the files of the client configuration until ctx ends.
func (t *Transports) Run(ctx context.Context, log *slog.Logger) {
	kubehttp.ReloadFiles(ctx, log, "a new CA or client certificate for kube-apiserver",
		func(context.Context) (bool, error) { return t.update() })
}

// update replaces the transports if the content of the files has changed, or there are none yet.
func (t *Transports) update() (changed bool, err error) {
	cfg, err := withFiles(t.cfg)
	if err != nil {
		return false, err
	}
	previous := t.current.Load()
	if previous != nil && reflect.DeepEqual(previous.config.TLSClientConfig, cfg.TLSClientConfig) {
		return false, nil
	}
	next, err := newTransportSets(cfg, t.base, t.impersonates)
	if err != nil {
		return false, err
	}
	t.current.Store(next)
	if previous != nil {
		previous.closeIdle()
	}
	return true, nil
}

// withFiles returns cfg with the content of its TLS files in place of their names. An empty file is an error: somebody
// may be writing it, and with an empty CA the system's roots would be trusted.
func withFiles(cfg *rest.Config) (*rest.Config, error) {
	cfg = rest.CopyConfig(cfg)
	if err := rest.LoadTLSFiles(cfg); err != nil {
		return nil, err
	}
	isEmpty := func(file string, content []byte) bool { return file != "" && len(content) == 0 }
	if isEmpty(cfg.CAFile, cfg.CAData) || isEmpty(cfg.CertFile, cfg.CertData) || isEmpty(cfg.KeyFile, cfg.KeyData) {
		return nil, errors.New("the file of the CA, the client certificate or its key is empty")
	}
	cfg.CAFile, cfg.CertFile, cfg.KeyFile = "", "", ""
	return cfg, nil
}
