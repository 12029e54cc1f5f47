//go:build !noembed

// Package embed runs the broker of a fleet inside the process of the submitter.
//
//	s, err := embed.Start("127.0.0.1:0", folder)    // writes folder/join, mode 0600
//	defer s.Close(finished)
//
// A server that starts again in the same folder has the same port, token and
// certificate, so that runners find it; what it had queued is gone, which the submitter
// mends. Source: spec scale-out 2 and 12.
package embed

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/dynosweep/dynosweep/sweep/fleet"
)

// Server is a running broker.
type Server struct {
	Link   *fleet.Link
	folder string
	srv    *server.Server
}

// saved is what a folder keeps between starts: the join file, with the key beside it.
type saved struct {
	Listen string `json:"listen"`
	Key    string `json:"key,omitempty"`
}

// Start runs a broker at listen, host and port; port 0 is a free one. folder holds what
// a later start needs.
func Start(listen, folder string) (*Server, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return nil, fmt.Errorf("%w: embed://%s: %w", fleet.ErrInput, listen, err)
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	s := &Server{folder: folder}
	var keep saved
	old, err := fleet.ReadLink(filepath.Join(folder, "join"))
	if err == nil {
		err = readJSON(filepath.Join(folder, "server"), &keep)
	}
	if err == nil && keep.Listen == listen {
		s.Link = old
		_, p, err := net.SplitHostPort(old.Address[len("nats://"):])
		if err == nil && port == "0" {
			port = p
		}
	} else if s.Link, keep, err = newLink(listen, host); err != nil {
		return nil, err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("%w: embed://%s: the port must be from 0 to 65535", fleet.ErrInput, listen)
	}
	if err := s.run(host, int(number), keep.Key); err != nil {
		return nil, err
	}
	return s, s.save(keep)
}

func newLink(listen, host string) (*fleet.Link, saved, error) {
	keep := saved{Listen: listen}
	token := make([]byte, 32)
	rand.Read(token)
	l := &fleet.Link{Token: hex.EncodeToString(token)}
	if fleet.IsLoopback(host) {
		return l, keep, nil
	}
	cert, key, err := certificate()
	l.Certificate, keep.Key = cert, key
	return l, keep, err
}

// certificate makes one that signs itself; the join file pins it.
func certificate() (cert, key string, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	now := time.Now()
	t := &x509.Certificate{SerialNumber: big.NewInt(now.UnixNano()), DNSNames: []string{fleet.CertificateName},
		NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(366 * 24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &private.PublicKey, private)
	if err != nil {
		return "", "", err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	text := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	return text("CERTIFICATE", der), text("PRIVATE KEY", secret), err
}

func (s *Server) run(host string, port int, key string) error {
	if port > 0 {
		probe, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			return fmt.Errorf("%w: embed://%s: %w", fleet.ErrInput, net.JoinHostPort(host, strconv.Itoa(port)), err)
		}
		probe.Close()
	}
	store := filepath.Join(s.folder, "queue")
	if err := os.RemoveAll(store); err != nil {
		return err
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	opt := &server.Options{ServerName: "dynosweep", Host: host, Port: port, Authorization: s.Link.Token, JetStream: true, StoreDir: store,
		NoSigs: true, NoLog: true, DontListen: false, MaxPayload: 2 << 20}
	if s.Link.Certificate != "" {
		pair, err := tls.X509KeyPair([]byte(s.Link.Certificate), []byte(key))
		if err != nil {
			return err
		}
		opt.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}
		opt.TLSTimeout = 5
	}
	var err error
	if s.srv, err = server.NewServer(opt); err != nil {
		return err
	}
	s.srv.Start()
	if !s.srv.ReadyForConnections(30 * time.Second) {
		s.srv.Shutdown()
		return errors.New("the embedded server did not start in 30 s")
	}
	at := s.srv.Addr().(*net.TCPAddr)
	if !fleet.IsLoopback(host) && at.IP.IsUnspecified() {
		if host, err = os.Hostname(); err != nil {
			return err
		}
	}
	s.Link.Address = "nats://" + net.JoinHostPort(host, strconv.Itoa(at.Port))
	return nil
}

// save writes the join file and what the next start needs, both for the owner alone.
func (s *Server) save(keep saved) error {
	return errors.Join(writeJSON(filepath.Join(s.folder, "server"), keep), writeJSON(filepath.Join(s.folder, "join"), s.Link))
}

func readJSON(name string, v any) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}

func writeJSON(name string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(name+".new", append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// Close ends the server. Of a finished sweep nothing stays.
func (s *Server) Close(finished bool) error {
	s.srv.Shutdown()
	s.srv.WaitForShutdown()
	if finished {
		return os.RemoveAll(s.folder)
	}
	return os.RemoveAll(filepath.Join(s.folder, "queue"))
}
