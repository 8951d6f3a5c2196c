use crate::config::{ChannelBinding as Binding, Config};
use crate::connection::encoding;
use crate::frames::cut;
use crate::stream::Stream;
use crate::tls;
use crate::wire::Wire;
use bytes::{Buf, Bytes};
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256, SCRAM_SHA_256, SCRAM_SHA_256_PLUS};
use postgres_protocol::message::frontend;
use std::io;
use tidewire_change::{Error, Result};

/// The server's side of what can be bound to.
enum Peer {
    Plain,
    Tls,
    /// Hash of its certificate (`tls-server-end-point`, RFC 5929).
    Bindable(Vec<u8>),
}

/// Proves to the server who we are; with SCRAM the server proves that it knows the password, too.
pub(crate) struct Login<'a> {
    config: &'a Config,
    peer: Peer,
    state: State,
    is_bound: bool,
}

enum State {
    Asked,
    Scram(Box<ScramSha256>),
    Answered,
    Done,
}

impl<'a> Login<'a> {
    pub(crate) fn new(config: &'a Config, stream: &Stream) -> Login<'a> {
        let peer = match stream {
            Stream::Tls(stream) => tls::end_point(stream).map_or(Peer::Tls, Peer::Bindable),
            _ => Peer::Plain,
        };
        Login { config, peer, state: State::Asked, is_bound: false }
    }

    /// Answers one Authentication message ("Start-up", AuthenticationXXX).
    pub(crate) async fn step(&mut self, mut body: Bytes, wire: &mut Wire) -> Result<()> {
        let code = body.try_get_i32().map_err(|_| cut("Authentication"))?;
        match code {
            0 => return self.accepted(),
            3 => {
                let password = self.password(wire)?;
                frontend::password_message(password.as_bytes(), &mut wire.outgoing).map_err(encoding)?;
                self.state = State::Answered;
            }
            5 => {
                let salt = *body.first_chunk().ok_or_else(|| cut("AuthenticationMD5Password"))?;
                let hash = md5_hash(self.config.user.as_bytes(), self.password(wire)?.as_bytes(), salt);
                frontend::password_message(hash.as_bytes(), &mut wire.outgoing).map_err(encoding)?;
                self.state = State::Answered;
            }
            10 => self.scram_first(&body, wire)?,
            11 => {
                let State::Scram(scram) = &mut self.state else { return Err(out_of_order(wire)) };
                scram.update(&body).map_err(|error| scram_failed(error, wire))?;
                frontend::sasl_response(scram.message(), &mut wire.outgoing).map_err(encoding)?;
            }
            12 => {
                let State::Scram(scram) = &mut self.state else { return Err(out_of_order(wire)) };
                scram.finish(&body).map_err(|error| scram_failed(error, wire))?;
                self.state = State::Answered;
                return Ok(());
            }
            _ => return Err(unknown_method(code, wire)),
        }
        wire.flush().await
    }

    /// The server lets us in.
    fn accepted(&mut self) -> Result<()> {
        if let State::Scram(_) = self.state {
            return Err(Error::unavailable("the server ended SCRAM without proving that it knows the password")
                .hint("something between here and the server may be in the way"));
        }
        self.state = State::Done;
        match self.config.channel_binding {
            Binding::Require if !self.is_bound => Err(unbound()),
            _ => Ok(()),
        }
    }

    pub(crate) fn must_be_done(&self) -> Result<()> {
        match self.state {
            State::Done => Ok(()),
            _ => Err(Error::unavailable("the server skipped authentication's end").hint("is it a PostgreSQL server?")),
        }
    }

    /// The password for a method that isn't bound to the server's certificate.
    fn password(&self, wire: &Wire) -> Result<&'a str> {
        if self.config.channel_binding == Binding::Require {
            return Err(unbound());
        }
        self.any_password(wire)
    }

    fn any_password(&self, wire: &Wire) -> Result<&'a str> {
        self.config.password.as_ref().map(|password| password.0.as_str()).ok_or_else(|| {
            let message = format!("PostgreSQL at {} wants a password for user {:?}", wire.place, self.config.user);
            Error::invalid(message).hint("write it into the database URL: postgres://USER:PASSWORD@…")
        })
    }

    fn scram_first(&mut self, mechanisms: &[u8], wire: &mut Wire) -> Result<()> {
        let offers = |name: &str| mechanisms.split(|b| *b == 0).any(|offered| offered == name.as_bytes());
        let wants_binding = self.config.channel_binding != Binding::Disable;
        let (mechanism, binding) = match &self.peer {
            Peer::Bindable(hash) if wants_binding && offers(SCRAM_SHA_256_PLUS) => {
                self.is_bound = true;
                (SCRAM_SHA_256_PLUS, ChannelBinding::tls_server_end_point(hash.clone()))
            }
            _ if !offers(SCRAM_SHA_256) => {
                return Err(Error::invalid(format!("PostgreSQL at {} offers no SCRAM-SHA-256", wire.place))
                    .hint("Tidewire knows the methods trust, password, md5 and scram-sha-256"))
            }
            // "We could bind, the server can't": if the server did offer it, somebody in between took the offer away.
            Peer::Bindable(_) if wants_binding => (SCRAM_SHA_256, ChannelBinding::unrequested()),
            _ => (SCRAM_SHA_256, ChannelBinding::unsupported()),
        };
        if !self.is_bound && self.config.channel_binding == Binding::Require {
            return Err(unbound());
        }
        let scram = ScramSha256::new(self.any_password(wire)?.as_bytes(), binding);
        frontend::sasl_initial_response(mechanism, scram.message(), &mut wire.outgoing).map_err(encoding)?;
        self.state = State::Scram(Box::new(scram));
        Ok(())
    }
}

fn unbound() -> Error {
    Error::invalid("channel_binding=require can't be kept: the server authenticates without binding to its certificate")
        .hint("use sslmode=require or more and a user with scram-sha-256, or channel_binding=prefer")
}

fn out_of_order(wire: &Wire) -> Error {
    Error::unavailable(format!("PostgreSQL at {} answers SCRAM out of order", wire.place))
        .hint("is it a PostgreSQL server?")
}

fn scram_failed(error: io::Error, wire: &Wire) -> Error {
    // The server's text may come from whoever is in between; it says nothing that helps.
    Error::invalid(format!("SCRAM with PostgreSQL at {} failed: {}", wire.place, error.kind()))
        .hint("check the password; the server didn't prove that it knows it")
}

fn unknown_method(code: i32, wire: &Wire) -> Error {
    let name = match code {
        2 => "Kerberos",
        6 => "SCM credentials",
        7 | 8 => "GSSAPI",
        9 => "SSPI",
        _ => "one that we don't know",
    };
    Error::invalid(format!("PostgreSQL at {} wants the authentication method {name} ({code})", wire.place))
        .hint("give this user one of trust, password, md5, scram-sha-256 or cert in pg_hba.conf")
}
